package processes

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// store is what process 0 keeps for all: values by key, and votes that are not complete.
type store struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed and renewed with each value
	ballots map[string]*ballot
	size    int
	gone    <-chan struct{} // nobody waits any longer
}

// ballot collects one number of each process.
type ballot struct {
	values   []int64
	voted    []bool
	missing  int
	complete chan struct{}
}

func newStore(size int, gone <-chan struct{}) *store {
	return &store{values: map[string][]byte{}, changed: make(chan struct{}), ballots: map[string]*ballot{}, size: size, gone: gone}
}

func (s *store) put(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	close(s.changed)
	s.changed = make(chan struct{})
}

// get returns the value of a key, and waits for it that long.
func (s *store) get(ctx context.Context, key string, wait time.Duration) (value []byte, found bool, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s.mu.Lock()
		value, found = s.values[key]
		changed := s.changed
		s.mu.Unlock()
		if found || wait <= 0 {
			return value, found, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, false, nil
		case <-s.gone:
			return nil, false, errGone
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// agree adds the number of a process, and returns those of all when they are there.
func (s *store) agree(ctx context.Context, name string, rank int, value int64) ([]int64, error) {
	if rank < 0 || rank >= s.size {
		return nil, fmt.Errorf("process %d of %d votes on %q", rank, s.size, name)
	}
	s.mu.Lock()
	b := s.ballots[name]
	if b == nil {
		b = &ballot{values: make([]int64, s.size), voted: make([]bool, s.size), missing: s.size, complete: make(chan struct{})}
		s.ballots[name] = b
	}
	if b.voted[rank] {
		s.mu.Unlock()
		return nil, fmt.Errorf("process %d votes twice on %q", rank, name)
	}
	b.values[rank], b.voted[rank] = value, true
	if b.missing--; b.missing == 0 {
		delete(s.ballots, name)
		close(b.complete)
	}
	s.mu.Unlock()
	var err error
	select {
	case <-b.complete:
	case <-s.gone:
		err = errGone
	case <-ctx.Done():
		err = ctx.Err()
	}
	if isClosed(b.complete) { // a process may leave as soon as it knows the others' numbers
		return b.values, nil
	}
	return nil, err
}
