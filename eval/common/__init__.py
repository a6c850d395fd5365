"""Parts that the evaluation programs share: models, text, coders, reports."""
