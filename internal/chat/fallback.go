package chat

// Fallback is the template for a model that brings none, as base models do: a
// dialogue written out. FallbackStop ends the model's turn, since such a model
// goes on with the other speaker's.
const (
	Fallback = `{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}

{% elif m.role == 'user' %}User: {{ m.content }}
{% else %}Assistant: {{ m.content }}
{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}`
	FallbackStop = "\nUser:"
)
