// Package processes lets the processes of one training, on one machine or several, find each other, share small values, agree on
// what each of them is to do, and notice that one of them is gone. Process 0 keeps the values, and the others reach it over gRPC.
//
// It moves no tensors: that is the device's business, which exchanges through it what it needs to connect its own parts.
package processes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
)

// Times that matter to somebody who waits.
const (
	// joinPatience is how long the first process waits for the last: a cluster does not start all of them at once.
	joinPatience = 10 * time.Minute
	// silence is how long a machine may be silent before it is asked whether it is there, and reply is how long it has to answer: a
	// network may pause for some seconds. A process that ends closes its connection, which is noticed at once.
	silence = 5 * time.Second
	reply   = 15 * time.Second
	// farewell is how long a process that failed waits until the others know why.
	farewell = 2 * time.Second
)

// retries are how often a process tries to reach one that does not listen yet.
var retries = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}

// A Group is the processes of one training, seen by one of them.
type Group struct {
	place Place
	store *store                // of process 0
	rpc   wire.ProcessesClient  // of the others
	end   func(farewell string) // tells the others that this process leaves, and why if it leaves early

	once sync.Once
	gone chan struct{} // closed when one is gone
	err  error         // which, and why
}

// errGone stands for the error of the group, where that is not known.
var errGone = status.Error(codes.Unavailable, "a process of this training is gone")

// Join meets the other processes, and returns when all are there. Leave ends it.
func Join(ctx context.Context, place Place) (*Group, error) {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	g := &Group{place: place, gone: make(chan struct{})}
	if place.Rank == 0 {
		return g, g.serve(ctx)
	}
	return g, g.attend(ctx)
}

// Rank is the number of this process, from 0 on.
func (g *Group) Rank() int { return g.place.Rank }

// Size is the number of processes.
func (g *Group) Size() int { return g.place.Size }

// Local is the number of this process among those on its machine, -1 if that is not known.
func (g *Group) Local() int { return g.place.Local }

// Gone is closed when one of the processes is gone before its work was done.
func (g *Group) Gone() <-chan struct{} { return g.gone }

// Err says which process is gone; nil if none is.
func (g *Group) Err() error {
	select {
	case <-g.gone:
		return g.err
	default:
		return nil
	}
}

// lose notes that a process is gone, unless another one was before: the ends of the others follow from the first.
func (g *Group) lose(err error) {
	g.once.Do(func() {
		g.err = err
		close(g.gone)
	})
}

// Put sets the value of a key.
func (g *Group) Put(key string, value []byte) error {
	if g.store != nil {
		g.store.put(key, slices.Clone(value))
		return nil
	}
	_, err := g.rpc.Put(context.Background(), &wire.Entry{Key: key, Value: value})
	return g.explain(err)
}

// Get returns the value of a key, and waits for it that long if there is none.
func (g *Group) Get(key string, wait time.Duration) (value []byte, found bool, err error) {
	if g.store != nil {
		value, found, err = g.store.get(context.Background(), key, wait)
		return value, found, g.explain(err)
	}
	a, err := g.rpc.Get(context.Background(), &wire.Question{Key: key, WaitMilliseconds: wait.Milliseconds()})
	return a.GetValue(), a.GetFound(), g.explain(err)
}

// Agree gives the others a number, and returns those of all, by rank. All processes call it with the same names in the same order.
func (g *Group) Agree(name string, value int64) (values []int64, err error) {
	if g.store != nil {
		values, err = g.store.agree(context.Background(), name, g.place.Rank, value)
		return values, g.explain(err)
	}
	v, err := g.rpc.Agree(context.Background(), &wire.Vote{Name: name, Rank: int32(g.place.Rank), Value: value})
	return v.GetValues(), g.explain(err)
}

// explain says which process is gone where that is why a call failed. The notice may come a moment after the failure.
func (g *Group) explain(err error) error {
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled {
		select {
		case <-g.gone:
			return g.err
		case <-time.After(farewell):
		}
	}
	return fmt.Errorf("process 0 at %s: %w", g.place.Address, err)
}

// Leave ends the part of this process. Without an error it waits until the others have done their work, too. With one, the others
// end because of it. To leave twice does nothing.
func (g *Group) Leave(err error) {
	if err == nil {
		g.end("")
		return
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	g.end(text)
}

// name is how errors call a process.
func (g *Group) name(rank int, host string) string {
	return fmt.Sprintf("process %d of %d (on %s)", rank, g.place.Size, host)
}

// goneError says that a process is gone, and why if it has said that itself.
func (g *Group) goneError(rank int, host, failure string) error {
	if failure == "" {
		return fmt.Errorf("%s is gone: its connection has ended", g.name(rank, host))
	}
	return fmt.Errorf("%s has failed: %s", g.name(rank, host), failure)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
