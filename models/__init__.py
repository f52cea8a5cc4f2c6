"""Model files: what a name such as `smollm2-135m-instruct` stands for on this machine.

Every model is a Hugging Face folder of a Llama-architecture model (config.json, model.safetensors, tokenizer.json,
tokenizer_config.json). The engine reads its weights, the caller's side its tokenizer and chat template.
"""
