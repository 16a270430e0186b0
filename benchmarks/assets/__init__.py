"""What a run needs on disk: checkpoints, tokenizers, datasets. Pure."""
