package prefill

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tandem-llm/tandem/internal/engine"
	"github.com/tandem-llm/tandem/internal/engine/sim"
	"github.com/tandem-llm/tandem/internal/flight"
	"github.com/tandem-llm/tandem/internal/id"
	"github.com/tandem-llm/tandem/internal/kv"
	"github.com/tandem-llm/tandem/internal/room"
)

// The engine exported the first chunk before the book had heard of the admission: the
// chunk was dropped and the hand-over stalled. Nothing runs here, so the order is this.
func TestAChunkThatIsExportedBeforeTheBookHeardOfItsAdmissionIsKept(t *testing.T) {
	backend, err := sim.New(sim.Config{Chunk: 16})
	if err != nil {
		t.Fatal(err)
	}
	arena, err := kv.NewArena(kv.ArenaConfig{Bytes: 1 << 20, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w := New(Config{Engine: engine.New(engine.Config{Backend: backend, Log: log}), Arena: arena, Recorder: flight.New("prefill", 0, nil), Log: log})
	j, refused := w.open(Request{RID: "r", Room: id.Room(1), Tokens: make([]engine.Token, 40), Due: time.Now().Add(time.Minute)})
	if refused != nil {
		t.Fatal(refused)
	}
	r, _ := w.place()
	if r == nil || r.job != j {
		t.Fatal("the room was not admitted")
	}
	space := r.Space(0, 16, backend.ChunkBytes(16))
	r.Exported(0, 16, len(space), nil)
	w.keeper.Do(func(b *room.Book, now room.Mono) []room.Effect { return w.admitted(b, now, r) })
	drops, _ := w.Book()
	if n := w.Counts()[room.Computing]; n != 1 || len(drops) > 0 || len(r.chunks) != 1 {
		t.Errorf("%d rooms compute with %d chunks, and the book dropped %v", n, len(r.chunks), drops)
	}
}
