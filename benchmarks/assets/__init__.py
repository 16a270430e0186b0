"""What a run needs on disk: checkpoints, tokenizers, data. Pure."""
