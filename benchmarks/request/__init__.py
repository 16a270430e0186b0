"""What a person asks for -> one frozen Benchmark, or a refusal."""
