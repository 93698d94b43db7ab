package testmodel

import (
	"math"

	"github.com/tandem-llm/tandem/internal/gguf"
)

// mambaMeta adds to the metadata what a state-space model has instead of heads.
func (b *builder) mambaMeta(meta []gguf.Meta) []gguf.Meta {
	key := func(k string) string { return b.Arch + "." + k }
	return append(meta,
		gguf.Meta{Key: key("ssm.conv_kernel"), Value: uint32(b.Taps)},
		gguf.Meta{Key: key("ssm.inner_size"), Value: uint32(b.Inner)},
		gguf.Meta{Key: key("ssm.state_size"), Value: uint32(b.State)},
		gguf.Meta{Key: key("ssm.time_step_rank"), Value: uint32(b.DtRank)},
	)
}

// Time constants of the state: a token adds about step times its input, and a
// number of the state forgets by step × decay per token. So the fastest forget
// in tens of tokens and the slowest remember the whole context.
const (
	stateStep = 0.05
	slowDecay = 0.005
	fastDecay = 1.0
)

// mamba lists every tensor of a recurrent model.
func (b *builder) mamba() {
	b.matrix("token_embd.weight", b.Embd, len(b.vocab.tokens), math.Sqrt(float64(b.Embd)))
	for l := range b.Layers {
		name, bare := layerNames(l)
		b.norm(name("attn_norm"), b.Embd, 1)
		b.matrix(name("ssm_in"), b.Embd, 2*b.Inner, 1)
		b.matrix(name("ssm_conv1d"), b.Taps, b.Inner, 1.5)
		b.constant(bare("ssm_conv1d.bias"), b.Inner, func(int) float64 { return 0 })
		b.matrix(name("ssm_x"), b.Inner, b.DtRank+2*b.State, 2)
		b.matrix(name("ssm_dt"), b.DtRank, b.Inner, 0.5)
		b.constant(bare("ssm_dt.bias"), b.Inner, func(int) float64 { return math.Log(math.Expm1(stateStep)) }) // softplus gives the step
		b.constant(bare("ssm_a"), b.State*b.Inner, func(i int) float64 {
			return -slowDecay * math.Pow(fastDecay/slowDecay, float64(i%b.State)/float64(b.State-1))
		}, b.State, b.Inner)
		b.norm(bare("ssm_d"), b.Inner, 1)
		b.matrix(name("ssm_out"), b.Inner, b.Embd, b.Mix)
	}
	b.norm("output_norm.weight", b.Embd, 1)
	b.output()
}
