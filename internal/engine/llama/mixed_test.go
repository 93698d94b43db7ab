package llama

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

// stream is a Handler that keeps the times of its tokens.
type stream struct {
	relay
	at []time.Time
}

func (s *stream) Token(t engine.Token, _ int32, _ *engine.Logprobs) { s.at = append(s.at, time.Now()) }

// BenchmarkStreamsBesidePrompts tells what 4 running streams and a 2,000-token
// prompt do to each other, by MixedTarget.
func BenchmarkStreamsBesidePrompts(bm *testing.B) {
	for _, target := range []time.Duration{250 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond} {
		bm.Run(fmt.Sprint(target), func(bm *testing.B) {
			b := load(bm, testmodel.Gemma3, Config{Context: 8192, Slots: 6, Threads: 1})
			for bm.Loop() {
				l := run(bm, b, engine.Config{MixedTarget: target, NoPrefixCache: true})
				var streams []*stream
				var seqs []*engine.Seq
				for i := range 4 {
					s := &stream{relay: relay{done: make(chan engine.Result, 1)}}
					streams = append(streams, s)
					q, err := l.Admit(&engine.Request{Tokens: prompt(b, 20, i), Gen: &engine.Params{MaxTokens: 1200, IgnoreEOS: true}}, s)
					if err != nil {
						bm.Fatal(err)
					}
					seqs = append(seqs, q)
				}
				begin := time.Now()
				const prompts = 3
				for i := range prompts {
					h := &relay{done: make(chan engine.Result, 1)}
					if _, err := l.Admit(&engine.Request{Tokens: prompt(b, 2000, 10+i), Gen: &engine.Params{MaxTokens: 1}}, h); err != nil {
						bm.Fatal(err)
					}
					<-h.done
				}
				took := time.Since(begin)
				var wg sync.WaitGroup
				var gaps []time.Duration
				for i, s := range streams {
					seqs[i].Cancel(nil)
					wg.Go(func() { <-s.done })
				}
				wg.Wait()
				for _, s := range streams {
					for i := 1; i < len(s.at); i++ {
						gaps = append(gaps, s.at[i].Sub(s.at[i-1]))
					}
				}
				slices.Sort(gaps)
				bm.ReportMetric(gaps[len(gaps)*99/100].Seconds()*1000, "p99-ITL-ms")
				bm.ReportMetric(gaps[len(gaps)/2].Seconds()*1000, "p50-ITL-ms")
				bm.ReportMetric(took.Seconds()/prompts, "s/prompt")
			}
		})
	}
}
