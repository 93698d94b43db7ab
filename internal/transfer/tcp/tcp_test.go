package tcp

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tandem-llm/tandem/internal/transfer"
	"github.com/tandem-llm/tandem/internal/transfer/transfertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheContract(t *testing.T) {
	transfertest.Run(t, transfertest.Factory{
		Network: "tcp",
		New: func(t testing.TB, s transfertest.Setup) (transfer.Source, transfer.Sink) {
			cfg := Config{MaxQueued: s.MaxQueued, Debug: true, HandshakeTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
			cfg.Self = s.Source
			src, err := NewSource(cfg, s.SourceHandler)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Self = s.Sink
			snk, err := NewSink(cfg, s.SinkHandler)
			if err != nil {
				t.Fatal(err)
			}
			return src, snk
		},
	})
}
