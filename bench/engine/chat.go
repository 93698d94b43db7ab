package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tandem-llm/tandem/bench/internal/client"
	"github.com/tandem-llm/tandem/bench/internal/stats"
)

const (
	chatAnswer = 32 // tokens of each turn's answer
	chatNext   = "\nUser: And what came of it in the end? Please tell me in a few words.\nAssistant:"
	// chatPause is the time between an answer and the next question. It covers what
	// a server does after its answer's end.
	chatPause = 200 * time.Millisecond
)

// chatTest measures TTFT of a long first turn and of the second, which begins with
// all of the first. Every system may keep what it computed.
func (b *bench) chatTest(ctx context.Context) error {
	f, systems, err := b.start(ctx, size{slots: 2, tokens: b.chat + 4*chatAnswer + 64, single: b.threads, worker: b.threads, pair: true, cache: true})
	if err != nil {
		return err
	}
	defer f.Stop()
	text := promptsOf(systems)
	first, second, share, cached := series{}, series{}, series{}, series{}
	for i := -1; i < b.pairs; i++ {
		ids, err := text.next(ctx, b.chat)
		if err != nil {
			return err
		}
		texts := map[string][]client.Sample{}
		for _, s := range rotated(systems, i) {
			one, two, err := b.turns(ctx, s, text.url, ids)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, f.Logs())
			}
			if texts[s.name] = []client.Sample{one}; i < 0 {
				continue
			}
			t1, t2 := stats.Ms(one.TTFT()), stats.Ms(two.TTFT())
			first.add(s.name, t1)
			second.add(s.name, t2)
			share.add(s.name, 100*t2/t1)
			cached.add(s.name, 100*float64(two.Cached)/float64(two.Prompt))
		}
		b.rep.compare("chat, first answer", texts)
		progress("chat: pair %d of %d", i+1, b.pairs)
	}
	progressed()
	b.rep.add(row{Test: "chat", Name: fmt.Sprintf("TTFT of the first turn, %d tokens", b.chat), Unit: "ms"}, first)
	b.rep.add(row{Test: "chat", Name: "TTFT of the second turn", Unit: "ms"}, second)
	b.rep.add(row{Test: "chat", Name: "second turn's TTFT, of the first's", Unit: "%"}, share)
	b.rep.add(row{Test: "chat", Name: "second turn's prompt that was cached, as the server says", Unit: "%", Higher: true}, cached)
	return nil
}

// turns asks twice. The second prompt holds the first, its answer, and a question.
func (b *bench) turns(ctx context.Context, s system, tokenizer string, ids []int32) (one, two client.Sample, err error) {
	if one, err = client.Complete(ctx, s.url, client.Request{Prompt: ids, Generate: chatAnswer, Cache: true}); err != nil {
		return one, two, err
	}
	if err := same(s.name, one, len(ids), chatAnswer, false); err != nil {
		return one, two, err
	}
	more, err := client.Tokenize(ctx, tokenizer, one.Text+chatNext, false)
	if err != nil {
		return one, two, err
	}
	select {
	case <-time.After(chatPause):
	case <-ctx.Done():
		return one, two, context.Cause(ctx)
	}
	next := append(ids[:len(ids):len(ids)], more...)
	if two, err = client.Complete(ctx, s.url, client.Request{Prompt: next, Generate: chatAnswer, Cache: true}); err != nil {
		return one, two, err
	}
	return one, two, same(s.name, two, len(next), chatAnswer, false)
}
