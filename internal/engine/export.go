package engine

import "fmt"

// export hands out the chunks that are complete, or pauses s until Resume. There
// is more than one after a start from another sequence's KV.
func (l *Loop) export(s *Seq) {
	for !s.over {
		p0, p1, ok := s.chunkDue(int32(l.info.Chunk))
		if !ok {
			return
		}
		if s.owes = true; !l.exportOne(s, p0, p1) {
			return
		}
		s.exported, s.owes = p1, false
		l.enterPhase(s, prefilling)
	}
}

// exportOne says whether the chunk [p0, p1) of s was handed out.
func (l *Loop) exportOne(s *Seq, p0, p1 int32) bool {
	if p1 <= s.spares() {
		return l.exported(s, p0, p1, 0, nil)
	}
	size := l.backend.ChunkBytes(int(p1 - p0))
	var dst []byte
	if err := l.guard(s, func() { dst = s.h.Space(p0, p1, size) }); err != nil {
		l.finish(s, FinishFailed, err)
		return false
	}
	if dst == nil {
		l.enterPhase(s, paused)
		return false
	}
	n, err := 0, error(nil)
	if len(dst) < size {
		err = fmt.Errorf("export of positions [%d, %d) needs %d bytes, Space gave %d", p0, p1, size, len(dst))
	} else {
		l.enter(int(p1-p0), 0)
		n, err = l.backend.Export(s.slot, p0, p1, dst)
		l.leave()
	}
	return l.exported(s, p0, p1, n, err)
}

// exported hands a chunk out and says whether s goes on.
func (l *Loop) exported(s *Seq, p0, p1 int32, n int, err error) bool {
	if p := l.guard(s, func() { s.h.Exported(p0, p1, n, err) }); err == nil {
		err = p
	}
	if err != nil {
		l.finish(s, FinishFailed, err)
	}
	return err == nil
}
