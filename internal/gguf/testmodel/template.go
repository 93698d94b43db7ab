package testmodel

// chatTemplate returns the jinja chat template of an architecture.
func chatTemplate(arch string) string {
	if arch == "gemma3" {
		return gemmaTemplate
	}
	return chatmlTemplate
}

const chatmlTemplate = `{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

const gemmaTemplate = `{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<start_of_turn>model\n' }}{% else %}{{ '<start_of_turn>' + message['role'] + '\n' }}{% endif %}{{ message['content'] }}{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}`
