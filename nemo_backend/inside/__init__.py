"""What runs inside NeMo's environment: no package of ours is importable there."""
