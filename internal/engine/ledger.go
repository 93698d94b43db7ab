package engine

import (
	"fmt"

	"github.com/tandem-llm/tandem/internal/id"
)

// ledger says who holds which cells and slots. Loop.mu guards it. Cells are
// reserved at admission for a sequence's whole life, so a running sequence never
// has to wait for cells: that is one half of why nothing can deadlock.
type ledger struct {
	total int
	held  int
	slots []id.SeqID // free ones, last first
}

func newLedger(cells, slots int) ledger {
	g := ledger{total: cells}
	for s := slots - 1; s >= 0; s-- {
		g.slots = append(g.slots, id.SeqID(s))
	}
	return g
}

func (g *ledger) take(cells int) (id.SeqID, error) {
	if cells > g.total-g.held {
		return 0, fmt.Errorf("%w: %d asked for, %d of %d free", ErrNoCells, cells, g.total-g.held, g.total)
	}
	if len(g.slots) == 0 {
		return 0, ErrNoSlot
	}
	s := g.slots[len(g.slots)-1]
	g.slots = g.slots[:len(g.slots)-1]
	g.held += cells
	return s, nil
}

func (g *ledger) give(cells int, slot id.SeqID) {
	g.held -= cells
	g.slots = append(g.slots, slot)
}
