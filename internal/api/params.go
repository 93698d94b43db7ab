package api

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/tandem-llm/tandem/internal/sample"
)

// sampling reads what both APIs have; the names of two fields differ.
func (f *fields) sampling(c *Call, maxName, maxOther, seedName string) {
	p := &c.Params
	p.Temperature, p.TopP = 1, 1
	f.number("temperature", 0, 2, false, &p.Temperature)
	f.number("top_p", 0, 1, true, &p.TopP)
	f.number("min_p", 0, 1, false, &p.MinP)
	f.number("repetition_penalty", 0, 2, true, &p.Repetition)
	f.number("presence_penalty", -2, 2, false, &p.Presence)
	f.number("frequency_penalty", -2, 2, false, &p.Frequency)
	var k int64
	if f.integer("top_k", -1, math.MaxInt32, &k) && k > 0 {
		p.TopK = int(k) // −1 and 0 mean all
	}
	f.flag("ignore_eos", &p.IgnoreEOS)
	f.bias(c)
	f.maxTokens(c, maxName, maxOther)
	for _, name := range []string{"min_tokens", "min_new_tokens"} {
		var least int64
		if f.integer(name, 0, int64(f.limits.MaxMaxTokens), &least) {
			p.MinTokens = int(least)
			if least > int64(p.MaxTokens) && !c.MaxTokensDefault {
				f.bad(name, "%d is above the %d tokens that may be generated", least, p.MaxTokens)
			}
		}
	}

	var seed int64
	_, named := f.get(seedName)
	switch {
	case named:
		f.integer(seedName, math.MinInt64, math.MaxInt64, &seed)
		p.Seed = uint64(seed)
	default:
		var b [8]byte
		rand.Read(b[:]) // never fails
		p.Seed, c.SeedDefault = binary.LittleEndian.Uint64(b[:]), true
	}

	n := int64(1)
	f.integer("n", 1, MaxChoices, &n)
	c.N = int(n)
	f.stops(c)
	for _, name := range []string{"no_stop_trim", "include_stop_str_in_output"} {
		keep := false
		f.flag(name, &keep)
		c.KeepStop = c.KeepStop || keep
	}
	f.form(c)
	skip := true
	f.flag("skip_special_tokens", &skip)
	c.FullText = !skip
	for _, name := range []string{"stop_regex", "stop_token", "custom_params", "logits_processors", "beam_width", "use_beam_search"} {
		f.refuseUnless(name, "it is not supported", func(v []byte) bool { return isEmpty(v) || isFalse(v) || isNumber(1)(v) })
	}
}

func (f *fields) maxTokens(c *Call, name, other string) {
	n := int64(f.limits.DefaultMaxTokens)
	if _, ok := f.get(name); !ok { // the newer name wins, as the API says
		name = other
	}
	least := int64(1)
	echo, _ := f.get("echo")
	if c.PromptLogprobs > 0 || c.Kind == Completion && string(echo) == "true" {
		least = 0
	}
	switch _, ok := f.get(name); {
	case !ok:
		c.MaxTokensDefault = true
	case f.integer(name, least, int64(f.limits.MaxMaxTokens), &n) && n == 0:
		c.NoText, n = true, 1
	}
	c.Params.MaxTokens = int(n)
}

// bias reads logit_bias: an object from token id to −100 … 100.
func (f *fields) bias(c *Call) {
	v, ok := f.get("logit_bias")
	if !ok {
		return
	}
	var m map[string]float64
	if json.Unmarshal(v, &m) != nil {
		f.bad("logit_bias", `%s is not an object like {"50256":-100}`, show(v))
		return
	}
	if len(m) > MaxBias {
		f.bad("logit_bias", "%d tokens are above the limit of %d", len(m), MaxBias)
		return
	}
	for key, add := range m {
		t, err := strconv.ParseInt(key, 10, 32)
		switch {
		case err != nil || t < 0:
			f.bad("logit_bias", "%q is not a token id", show([]byte(key)))
		case add < -100 || add > 100:
			f.bad("logit_bias", "%g for token %d is outside -100 to 100", add, t)
		}
		c.Params.Bias = append(c.Params.Bias, sample.Bias{Token: int32(t), Add: float32(add)})
	}
	slices.SortFunc(c.Params.Bias, func(a, b sample.Bias) int { return int(a.Token) - int(b.Token) }) // as a map has no order
}

// stops reads stop and stop_token_ids.
func (f *fields) stops(c *Call) {
	most := MaxStops
	if c.Kind == Generate {
		most = MaxStopsGenerate
	}
	if v, ok := f.get("stop"); ok {
		var list []string
		var one string
		switch {
		case json.Unmarshal(v, &one) == nil:
			list = []string{one}
		case json.Unmarshal(v, &list) != nil:
			f.bad("stop", "%s is neither a string nor a list of strings", show(v))
		case len(list) > most:
			f.bad("stop", "%d strings are above the limit of %d", len(list), most)
		}
		for _, s := range list {
			if len(s) > MaxStopBytes {
				f.bad("stop", "%d bytes are above the limit of %d", len(s), MaxStopBytes)
			}
			if s != "" {
				c.Stop = append(c.Stop, s)
			}
		}
	}
	if v, ok := f.get("stop_token_ids"); ok && !isEmpty(v) {
		c.Params.StopTokens = f.ids("stop_token_ids", v)
		if len(c.Params.StopTokens) > MaxBias {
			f.bad("stop_token_ids", "%d tokens are above the limit of %d", len(c.Params.StopTokens), MaxBias)
		}
	}
}

// openAIOnly reads, or refuses, what only the OpenAI bodies can ask for.
func (f *fields) openAIOnly(c *Call) {
	if v, ok := f.get("best_of"); ok && !isNumber(float64(c.N))(v) {
		f.bad("best_of", "%s is refused: only as many as n, %d, are generated", show(v), c.N)
	}
	f.logprobs(c)
	if c.Kind == Completion {
		f.refuseUnless("tools", "tool calls are for /v1/chat/completions", isEmpty)
	}
	f.refuseUnless("audio", "audio is not supported", isEmpty)
	f.refuseUnless("prediction", "predicted output is not supported", isEmpty)
	f.refuseUnless("web_search_options", "web search is not supported", isEmpty)
	f.refuseUnless("modalities", `only ["text"] is supported`, isTextList)
	f.refuseUnless("chat_template", "the model's own template is used", isEmpty)
	f.refuseUnless("chat_template_kwargs", "template arguments are not supported yet", isEmpty)
	f.refuseUnless("add_generation_prompt", "an answer always begins a new turn", isTrue)
	f.refuseUnless("continue_final_message", "an answer always begins a new turn", isFalse)
	f.refuseUnless("lora_path", "adapters are not supported", isEmpty)
}

// logprobs reads chat's and completions' forms.
func (f *fields) logprobs(c *Call) {
	var top int64
	if c.Kind == Chat {
		f.flag("logprobs", &c.Logprobs)
		if f.integer("top_logprobs", 0, MaxTopLogprobs, &top) && top > 0 && !c.Logprobs {
			f.bad("top_logprobs", "%d needs logprobs to be true", top)
		}
		f.refuseUnless("prompt_logprobs", "use /generate with logprob_start_len, or /v1/completions with echo", func(v []byte) bool { return isFalse(v) })
	} else {
		switch v, ok := f.get("logprobs"); {
		case !ok || isFalse(v):
		case isTrue(v):
			c.Logprobs = true
		default:
			c.Logprobs = f.integer("logprobs", 0, MaxTopLogprobs, &top)
		}
		f.refuseUnless("prompt_logprobs", "use echo with logprobs", isFalse)
		f.flag("echo", &c.Echo)
	}
	if c.Logprobs {
		c.Params.Logprobs = int(top) + 1
		if c.Echo {
			c.PromptLogprobs = int(top) + 1
		}
	}
}

// check looks at what fields mean together.
func (f *fields) check(c *Call) {
	if len(c.Batch) > MaxPrompts || c.Choices() > MaxBatch {
		f.bad("n", "%d prompts of %d choices are above the limits of %d prompts and %d choices", len(c.Prompts()), c.N, MaxPrompts, MaxBatch)
	}
	if c.NoText && c.Params.MinTokens > 0 {
		f.bad("min_tokens", "%d tokens cannot be generated with max_tokens 0", c.Params.MinTokens)
	}
	f.answer(c)
	c.Local = c.Batch != nil || c.PromptLogprobs > 0
}

// answer refuses what would make an answer larger than the router relays: better
// before it is computed than after.
func (f *fields) answer(c *Call) {
	perToken := int64(AnswerToken)
	logs := 0 // of one token: its own, and the likeliest
	if c.Logprobs {
		logs = c.Params.Logprobs
		perLog := int64(AnswerLog)
		if c.Kind == Chat {
			perLog = AnswerLogChat
		}
		perToken += perLog * int64(1+logs) // a token that is among the likeliest is there twice
	}
	choices, most := int64(c.Choices()), int64(MaxAnswer)
	if c.Stream {
		if c.Kind != Generate {
			return // each event holds a few tokens, and nothing keeps them
		}
		choices, most = 1, MaxEvent
	}
	name := "max_tokens"
	if c.Kind == Generate {
		name = "sampling_params.max_new_tokens"
	}
	if bytes := choices * int64(c.Params.MaxTokens) * perToken; bytes > most { // below 2^24 · 512 · 2^12: no overflow
		f.bad(name, "%d choices of %d tokens with %d log probabilities each make an answer of up to %d bytes, above the limit of %d: %d tokens fit",
			choices, c.Params.MaxTokens, logs, bytes, most, most/(choices*perToken))
	}
}
