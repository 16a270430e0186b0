"""The backends' virtual environments, made by uv from lock files."""
