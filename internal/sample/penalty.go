package sample

// Bias is added to one token's logit before anything else.
type Bias struct {
	Token int32
	Add   float32
}

// AddBias adds each bias. Tokens outside logits are ignored.
func AddBias(logits []float32, bias []Bias) {
	for _, b := range bias {
		if b.Token >= 0 && int(b.Token) < len(logits) {
			logits[b.Token] += b.Add
		}
	}
}

// Penalties make what a sequence holds already less likely. The zero value, and
// a Repetition of 1, change nothing.
//
// Repetition counts the prompt and the generated tokens, as its authors and all
// engines have it: a logit above 0 is divided by it, any other multiplied.
// Presence and Frequency are OpenAI's: they are subtracted, once and once per
// occurrence. They count generated tokens only, as SGLang and vLLM do: the words
// of a question shall not be taboo in its answer.
type Penalties struct {
	Repetition, Presence, Frequency float32
}

// Any says whether they change anything.
func (p Penalties) Any() bool {
	return p.Presence != 0 || p.Frequency != 0 || p.repeats()
}

func (p Penalties) repeats() bool { return p.Repetition > 0 && p.Repetition != 1 }

// Counts says how often a sequence holds each of its tokens. It is kept token by
// token; its size is that of the different tokens. The zero value is empty.
type Counts struct {
	at    map[int32]int32 // token → index in tally
	tally []tally
}

type tally struct {
	token     int32
	generated int32 // 0: in the prompt only
}

// Prompt counts a token of the prompt.
func (c *Counts) Prompt(t int32) { c.find(t) }

// Generated counts a generated token.
func (c *Counts) Generated(t int32) { c.find(t).generated++ }

func (c *Counts) find(t int32) *tally {
	i, ok := c.at[t]
	if !ok {
		if c.at == nil {
			c.at = make(map[int32]int32)
		}
		i = int32(len(c.tally))
		c.at[t] = i
		c.tally = append(c.tally, tally{token: t})
	}
	return &c.tally[i]
}

// Penalize applies the penalties to logits.
func (c *Counts) Penalize(logits []float32, p Penalties) {
	for _, x := range c.tally {
		if x.token < 0 || int(x.token) >= len(logits) {
			continue
		}
		l := logits[x.token]
		if p.repeats() {
			if l > 0 {
				l /= p.Repetition
			} else {
				l *= p.Repetition
			}
		}
		if x.generated > 0 {
			l -= p.Presence + p.Frequency*float32(x.generated)
		}
		logits[x.token] = l
	}
}
