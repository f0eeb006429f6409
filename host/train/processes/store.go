package processes

import (
	"context"
	"fmt"
	"sync"
	"time"
)

type store struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed and replaced with each value
	bytes   int           // total size of all values
	ballots map[string]*ballot
	size    int
	limit   time.Duration   // time limit of a vote
	gone    <-chan struct{} // closed when a process is lost, which ends all waiting
}

// Limits of process 0's store. XLA's clients store descriptions of their devices, a few hundred
// bytes each, and a value for each group of devices in an all-reduce. Few votes are pending at any
// time, because processes compute the same step.
const (
	maxKey     = 1 << 10
	maxValue   = 2 << 20
	maxValues  = 1 << 16
	maxBytes   = 256 << 20
	maxBallots = 256
)

type ballot struct {
	values   []int64
	voted    []bool
	missing  int
	complete chan struct{}
}

func newStore(size int, limit time.Duration, gone <-chan struct{}) *store {
	return &store{
		values: map[string][]byte{}, changed: make(chan struct{}), ballots: map[string]*ballot{},
		size: size, limit: limit, gone: gone,
	}
}

// put sets the value of a key, within the limits.
func (s *store) put(key string, value []byte) error {
	if len(key) > maxKey || len(value) > maxValue {
		return fmt.Errorf("got a key of %d bytes with a value of %d, want at most %d and %d",
			len(key), len(value), maxKey, maxValue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.values[key]
	bytes := s.bytes + len(value) - len(old)
	if !known && len(s.values) == maxValues || bytes > maxBytes {
		return fmt.Errorf("cannot store %d bytes beside %d values of %d bytes: want at most "+
			"%d values of %d bytes", len(value), len(s.values), s.bytes, maxValues, maxBytes)
	}
	s.values[key], s.bytes = value, bytes
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// get returns the value of a key. It waits for the value, but not longer than wait.
func (s *store) get(
	ctx context.Context, key string, wait time.Duration,
) (value []byte, found bool, err error) {
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

// agree adds the vote of a process, waits for those of all others and returns all votes by rank.
func (s *store) agree(ctx context.Context, name string, rank int, value int64) ([]int64, error) {
	if rank < 0 || rank >= s.size || len(name) > maxKey {
		return nil, fmt.Errorf("invalid vote of process %d of %d on %.100q", rank, s.size, name)
	}
	s.mu.Lock()
	b := s.ballots[name]
	if b == nil && len(s.ballots) == maxBallots {
		s.mu.Unlock()
		return nil, fmt.Errorf("cannot start a vote on %q: %d are pending already", name, maxBallots)
	}
	if b == nil {
		b = &ballot{values: make([]int64, s.size), voted: make([]bool, s.size), missing: s.size,
			complete: make(chan struct{})}
		s.ballots[name] = b
	}
	if b.voted[rank] {
		s.mu.Unlock()
		return nil, fmt.Errorf("process %d has already voted on %q", rank, name)
	}
	b.values[rank], b.voted[rank] = value, true
	if b.missing--; b.missing == 0 {
		delete(s.ballots, name)
		close(b.complete)
	}
	s.mu.Unlock()
	var err error
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case <-b.complete:
	case <-timer.C:
		err = fmt.Errorf("ranks %s have not voted on %q within %v",
			listed(s.silent(name)), name, s.limit)
	case <-s.gone:
		err = errGone
	case <-ctx.Done():
		err = ctx.Err()
	}
	if isClosed(b.complete) { // gone may be closed, too: a process may leave once the vote is complete
		return b.values, nil
	}
	return nil, err
}

// silent returns the ranks of the processes that have not voted yet.
func (s *store) silent(name string) (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.ballots[name]; b != nil {
		for rank, voted := range b.voted {
			if !voted {
				ranks = append(ranks, rank)
			}
		}
	}
	return ranks
}
