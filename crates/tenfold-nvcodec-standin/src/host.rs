//! The tests' side: loads the library and speaks to it.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::control::Counts;
use crate::faults::Fault;

/// The loaded library. All tests of a process share it.
#[derive(Debug)]
pub struct Standin {
    path: PathBuf,
    set: unsafe extern "C" fn(i32, i64) -> i32,
    reset: unsafe extern "C" fn(),
    violations: unsafe extern "C" fn(*mut u8, usize) -> usize,
    counts: unsafe extern "C" fn(*mut Counts),
    _library: libloading::Library,
}

/// Where cargo puts the library: beside the test, or a folder above.
fn find() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    let file =
        format!("{}tenfold_nvcodec_standin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = test.ancestors().skip(1).take(3).map(|folder| folder.join(&file)).find(|path| path.exists());
    found.ok_or_else(|| format!("{file} is not beside {}", test.display()))
}

impl Standin {
    /// Loads the library, once in a process, and makes tenfold take it for NVIDIA's: `TENFOLD_NVCUVID`, `TENFOLD_NVENC` and `TENFOLD_NVJPEG`
    /// name it.
    ///
    /// # Panics
    /// If it was not built: tests cannot go on without it.
    #[allow(clippy::panic)] // a helper of tests
    pub fn load() -> &'static Standin {
        static LOADED: OnceLock<Standin> = OnceLock::new();
        LOADED.get_or_init(|| match Standin::open() {
            Ok(standin) => standin,
            Err(why) => panic!("the stand-in cannot be loaded: {why}"),
        })
    }

    fn open() -> Result<Standin, String> {
        let path = find()?;
        let text = |e: libloading::Error| e.to_string();
        // SAFETY: it is ours and does nothing when it is loaded. The types are those of `control`. The variables are set
        // before anything of tenfold reads them, and nothing else in a test does.
        unsafe {
            let library = libloading::Library::new(&path).map_err(text)?;
            let standin = Standin {
                set: *library.get("tenfold_standin_set").map_err(text)?,
                reset: *library.get("tenfold_standin_reset").map_err(text)?,
                violations: *library.get("tenfold_standin_violations").map_err(text)?,
                counts: *library.get("tenfold_standin_counts").map_err(text)?,
                _library: library,
                path,
            };
            std::env::set_var("TENFOLD_NVCUVID", &standin.path);
            std::env::set_var("TENFOLD_NVENC", &standin.path);
            std::env::set_var("TENFOLD_NVJPEG", &standin.path);
            Ok(standin)
        }
    }

    /// The file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Sets a property, or makes it misbehave so often.
    pub fn set(&self, fault: Fault, value: i64) {
        // SAFETY: takes numbers.
        let unknown = unsafe { (self.set)(fault as i32, value) };
        debug_assert_eq!(unknown, 0);
    }

    /// Back to good behaviour; forgets violations.
    pub fn reset(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.reset)() }
    }

    /// Rules that callers broke.
    pub fn violations(&self) -> Vec<String> {
        let mut text = vec![0; 1 << 16];
        // SAFETY: as long as stated.
        let len = unsafe { (self.violations)(text.as_mut_ptr(), text.len()) };
        text.truncate(len);
        String::from_utf8_lossy(&text).lines().map(str::to_string).collect()
    }

    /// What is open, and what was done.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: it can be written.
        unsafe { (self.counts)(&mut counts) };
        counts
    }
}
