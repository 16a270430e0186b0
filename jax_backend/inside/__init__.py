"""What runs inside MaxText's environment: no package of ours is importable there."""
