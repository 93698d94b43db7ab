//go:build unix

package e2e

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/bench/cascade/watch"
	"github.com/tandem-llm/tandem/internal/gguf/testmodel"
)

// exitConfig is the exit status of a configuration that cannot work, as
// docs/operations.md promises it to whoever starts workers.
const exitConfig = 78

// endsMisconfigured fails the test unless a process ends at once, with the status
// and words for a configuration that cannot work, said once.
func endsMisconfigured(t *testing.T, p *process, within time.Duration, words ...string) {
	t.Helper()
	p.spawn(t)
	if code := p.await(t, within); code != exitConfig {
		t.Errorf("exit status %d, want %d", code, exitConfig)
	}
	said := p.log.all()
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("it does not say %q:\n%s", w, said)
		}
	}
	if strings.Contains(said, "starting it again") {
		t.Errorf("it was tried again:\n%s", said)
	}
}

func TestAConfigurationThatCannotWorkHasItsOwnExitStatus(t *testing.T) {
	t.Parallel()
	sim := simEngine{tokenTime: "1us", callTime: "1us"}.flags(t)
	gqa := llamaEngine{testmodel.LlamaGQA}.flags(t)
	for name, c := range map[string]struct {
		flags []string
		words []string
	}{
		"a host without the flag": {append(sim, "--host", "0.0.0.0"), []string{"--host 0.0.0.0 is not loopback", "--insecure-bind"}},
		"an unknown engine":       {[]string{"--engine", "abacus"}, []string{`engine "abacus" is unknown`}},
		"an odd KV type":          {append(gqa, "--kv-type", "q3"), []string{`KV type "q3"`, "use f16, bf16 or q8_0"}},
		"too many slots":          {append(gqa, "--slots", "100000"), []string{"100000 slots", "at most"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, role := range []string{"prefill", "decode", "serve"} {
				p := worker(role, freePort(t), c.flags)
				if role == "prefill" {
					p.args = append(p.args, "--bootstrap-port", "0")
				}
				endsMisconfigured(t, p, startTimeout, c.words...)
			}
		})
	}
}

func TestAModelWhoseStateCannotBeHandedOverIsRefusedByAPairAndServedInOneProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   testmodel.Kind
		arch   string
		reason string
	}{
		{testmodel.Recurrent, "mamba", "a recurrent model's state is not stored by position"},
		{testmodel.Hybrid, "lfm2", "a hybrid model keeps recurrent state that is not stored by position"},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			e := llamaEngine{c.kind}
			path, err := testmodel.Path(c.kind)
			if err != nil {
				t.Fatal(err)
			}
			words := []string{"(architecture " + c.arch + ") cannot be served by a prefill and a decode worker", c.reason, "tandem serve --model " + path}
			prefill := worker("prefill", freePort(t), e.flags(t), "--bootstrap-port", "0")
			endsMisconfigured(t, prefill, startTimeout, words...)
			endsMisconfigured(t, worker("decode", freePort(t), e.flags(t)), startTimeout, words...)

			up := &process{name: "up", args: append([]string{"up", "--port", strconv.Itoa(freePorts(t, 4))}, e.flags(t)...)}
			endsMisconfigured(t, up, 2*startTimeout, append(words, "which another start does not mend")...)

			p := worker("serve", freePort(t), e.flags(t))
			p.start(t)
			q := question{prompt: e.prompt(300, 1), tokens: 20}
			first := ask(t.Context(), p.url, q)
			first.is(t, "")
			if again := ask(t.Context(), p.url, q); again.text != first.text || first.text == "" {
				t.Errorf("the same prompt again: %q, not %q", again.text, first.text)
			}
			status, body, err := watch.Get(t.Context(), p.url+"/get_server_info")
			var info struct {
				HandOver string `json:"hand_over"`
			}
			if err != nil || status != http.StatusOK || json.Unmarshal(body, &info) != nil || !strings.Contains(info.HandOver, c.reason) {
				t.Errorf("%d %s %v", status, body, err)
			}
			p.alive(t)
		})
	}
}

// tandem up has no flag for the host of its workers: this is one that they refuse.
func TestUpStopsAtOnceWithTheMessageOfAWorkerThatCannotWork(t *testing.T) {
	t.Parallel()
	up := &process{name: "up", args: []string{"up", "--engine", "sim", "--port", strconv.Itoa(freePorts(t, 4)), "--", "--host", "0.0.0.0"}}
	endsMisconfigured(t, up, startTimeout, "--host 0.0.0.0 is not loopback", "which another start does not mend. It said:", "giving up: ")
}
