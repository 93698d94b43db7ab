package control

import (
	"time"
)

// write sends mail first, then the outbox's urgent lane, then the normal one, and
// goodbye last: whoever answers it has read all that came before. What could not be
// sent goes back and waits for the next session.
func (s *session) write(p *remote) {
	s.n.mu.Lock()
	drain := s.n.drain
	s.n.mu.Unlock()
	if drain {
		s.post(func(m *mail) { m.drain = true })
	}
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		if f, ok := s.nextMail(); ok {
			if !s.send(s.n.encode(f)) {
				return
			}
			continue
		}
		if frame, lane := p.box.pop(); frame != nil {
			if !s.send(frame) {
				p.box.unpop(lane, frame)
				return
			}
			p.sent.Add(1)
			continue
		}
		if s.takeBye() {
			if !s.send(s.n.encode(Frame{Type: Ping, Seq: goodbye})) {
				return
			}
			continue
		}
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-p.box.wake:
		}
	}
}

func (s *session) nextMail() (Frame, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.mail
	switch {
	case m.pong:
		m.pong = false
		return Frame{Type: Pong, Seq: m.pongSeq}, true
	case m.ping:
		m.ping = false
		return Frame{Type: Ping, Seq: m.pingSeq}, true
	case m.drain:
		m.drain = false
		return Frame{Type: Drain}, true
	}
	return Frame{}, false
}

func (s *session) takeBye() (bye bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bye, s.mail.bye = s.mail.bye, false
	return bye
}

// send writes one frame; the pinger ends the session if that takes too long.
func (s *session) send(frame []byte) bool {
	s.lagThen.Store(s.n.lag.Load())
	s.writing.Store(max(s.n.now(), 1))
	err := s.stream.SendMsg(frame)
	s.writing.Store(0)
	if err != nil {
		s.close(err)
	}
	return err == nil
}

// stalled says that the current write has taken longer than WriteTimeout.
func (s *session) stalled(now int64) bool {
	began := s.writing.Load()
	return began != 0 && time.Duration(now-began-(s.n.lag.Load()-s.lagThen.Load())) > WriteTimeout
}
