package main

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAPlanGivesEveryChildItsPortsAndTheRouterAllOfThem(t *testing.T) {
	o := upOptions{host: "0.0.0.0", port: 30000, prefill: 2, decode: 2, engine: "llama", threads: 3,
		pass: []string{"--kv-type", "q8_0"}, extra: []string{"--threads", "9"}}
	m := upModel{name: "gemma3-270m", path: "/m/g.gguf", libDir: "/l"}
	var got []string
	for _, c := range o.plan("/bin/tandem", m) {
		got = append(got, c.Name+" "+c.Health+": "+strings.Join(c.Args, " "))
	}
	worker := " --engine llama --model-name gemma3-270m --model /m/g.gguf --llama-lib /l --threads 3 --drain-timeout 5s --log-level warn --kv-type q8_0 --threads 9"
	want := []string{
		"prefill-0 http://127.0.0.1:30001/health: /bin/tandem prefill --host 127.0.0.1 --port 30001 --bootstrap-port 30002" + worker,
		"prefill-1 http://127.0.0.1:30003/health: /bin/tandem prefill --host 127.0.0.1 --port 30003 --bootstrap-port 30004" + worker,
		"decode-0 http://127.0.0.1:30005/health: /bin/tandem decode --host 127.0.0.1 --port 30005" + worker,
		"decode-1 http://127.0.0.1:30006/health: /bin/tandem decode --host 127.0.0.1 --port 30006" + worker,
		"router http://127.0.0.1:30000/health: /bin/tandem router --host 0.0.0.0 --port 30000 --drain-timeout 5s --log-level warn" +
			" --prefill http://127.0.0.1:30001,30002 --prefill http://127.0.0.1:30003,30004 --decode http://127.0.0.1:30005 --decode http://127.0.0.1:30006",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheSimulatorGetsNoModelAndNoLibrary(t *testing.T) {
	o := upOptions{host: "127.0.0.1", port: 30000, prefill: 1, decode: 1, engine: "sim", threads: 1}
	for _, c := range o.plan("tandem", upModel{name: "sim"}) {
		if slices.Contains(c.Args, "--model") || slices.Contains(c.Args, "--llama-lib") {
			t.Errorf("%v", c.Args)
		}
	}
}

func TestOddNumbersAreRefusedWithTheValueAndTheLimit(t *testing.T) {
	good := upOptions{port: 30000, prefill: 1, decode: 1, engine: "sim"}
	for want, change := range map[string]func(*upOptions){
		"--prefill 0":               func(o *upOptions) { o.prefill = 0 },
		"tandem serve":              func(o *upOptions) { o.decode = -1 },
		"--engine vllm":             func(o *upOptions) { o.engine = "vllm" },
		"--threads -1":              func(o *upOptions) { o.threads = -1 },
		"the ports 65533 to 65536":  func(o *upOptions) { o.port = 65533 },
		"--port 0: the router and ": func(o *upOptions) { o.port = 0 },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := good.check(); err != nil || good.threads < 1 {
		t.Errorf("%v, %d threads", err, good.threads)
	}
}

func TestATakenPortIsNamedWithItsOwnerAndARemedy(t *testing.T) {
	o := upOptions{host: "127.0.0.1", port: freePorts(t, 4), prefill: 1, decode: 1}
	if err := o.portsFree(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", strings.TrimPrefix(url(workerHost, o.decodePort(0)), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = o.portsFree()
	if err == nil || !strings.Contains(err.Error(), ", for decode-0, cannot be used") || !strings.Contains(err.Error(), "--port N takes N to N+3") {
		t.Errorf("%v", err)
	}
}

func TestTheRouterIsAskedWhereItCanBeReached(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:1", "0.0.0.0": "http://127.0.0.1:1", "": "http://127.0.0.1:1",
		"::": "http://[::1]:1", "::1": "http://[::1]:1", "10.0.0.7": "http://10.0.0.7:1", "box": "http://box:1",
	} {
		if got := (&upOptions{host: host, port: 1}).routerURL(); got != want {
			t.Errorf("%q: %s", host, got)
		}
	}
}

func TestTheCurlLineFitsTheModel(t *testing.T) {
	o := upOptions{host: "127.0.0.1", port: 30000, prefill: 1, decode: 2}
	base, chat := o.welcome(upModel{name: "b", path: "b.gguf"}, time.Second), o.welcome(upModel{name: "c", path: "c.gguf", chat: true}, time.Second)
	if !strings.Contains(base, "no chat template") || strings.Contains(chat, "no chat template") {
		t.Error(base, chat)
	}
	if sim := o.welcome(upModel{name: "sim", chat: true}, time.Second); !strings.Contains(sim, "made-up words") {
		t.Error(sim)
	}
	for question, text := range map[string]string{"What is the capital of France?": base, "What is 2+2?": chat} {
		for _, want := range []string{"/v1/chat/completions -H", `"temperature": 0,`, "with 1 prefill worker and 2 decode workers.", question, "--verbose"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
	}
}

func TestVerboseShowsEveryLineOfTheChildren(t *testing.T) {
	o := upOptions{host: "127.0.0.1", port: 30000, prefill: 1, decode: 1, engine: "sim", threads: 1, verbose: true}
	for _, c := range o.plan("tandem", upModel{name: "sim"}) {
		if slices.Contains(c.Args, "--log-level") {
			t.Errorf("%v", c.Args)
		}
	}
}

func TestARouterTakesHostAndPortForAnAddress(t *testing.T) {
	f := routerFlags{prefills: []string{"127.0.0.1:30001", "localhost:30003,8998", "https://a:1"}, decodes: []string{"[::1]:30002"}}
	if err := f.workers(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range append(f.Prefills, f.Decodes...) {
		got = append(got, w.URL)
	}
	if want := []string{"http://127.0.0.1:30001", "http://localhost:30003", "https://a:1", "http://[::1]:30002"}; !slices.Equal(got, want) || f.Prefills[1].BootstrapPort != 8998 {
		t.Errorf("%v", got)
	}
}
