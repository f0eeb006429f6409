// Package processes lets the processes of one training, on one machine or several, find each other, share small values, agree on
// what each of them is to do, and notice that one of them is gone. Process 0 keeps the values, and the others reach it over gRPC.
//
// It moves no tensors: that is the device's business, which exchanges through it what it needs to connect its own parts.
package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
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
	// voteLimit is how long a vote waits for the last process. Until it votes, a process may compile
	// for minutes, write its part of a checkpoint, or read all data to verify it, for hours if the
	// disk is slow. One whose machine is lost is noticed much earlier.
	voteLimit = 6 * time.Hour
	// nameLimit is how long process 0 waits until its name has an address: name servers hear of a new
	// pod some time after it has started.
	nameLimit = time.Minute
)

// Times that tests make shorter.
var (
	// reminder is after how long a process says what it waits for.
	reminder = 10 * time.Second
	// voteReminder is after how long process 0 says for whom a vote waits.
	voteReminder = 10 * time.Minute
	// visible is how long a process that has reached process 0 looks for the token: a network file
	// system may show a file late.
	visible = 30 * time.Second
)

// retries are how often a process tries to reach one that does not listen yet.
var retries = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: time.Second}

// A Run is what the processes of one training have in common.
type Run struct {
	// Dir is the directory into which each writes parts of checkpoints. Processes that do not have the
	// same are refused.
	Dir vfs.Path
	// Digest is that of the configuration. Process 0 believes who knows it that the directories
	// differ, and nothing else.
	Digest string
	// Tell receives what is waited for; nil: nobody does.
	Tell func(message string)
}

// A Group is the processes of one training, seen by one of them.
type Group struct {
	place Place
	run   Run
	host  string                // name of this machine
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
func Join(ctx context.Context, place Place, run Run) (*Group, error) {
	late := fmt.Errorf("the time limit of %v is over", joinPatience)
	ctx, cancel := context.WithTimeoutCause(ctx, joinPatience, late)
	defer cancel()
	g := &Group{place: place, run: run, gone: make(chan struct{})}
	if g.run.Tell == nil {
		g.run.Tell = func(string) {}
	}
	var err error
	if g.host, err = os.Hostname(); err != nil {
		g.host = "an unknown host"
	}
	// Messages of other machines name it.
	if g.run.Dir.Name, err = filepath.Abs(run.Dir.Name); err != nil {
		return nil, err
	}
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
		return g.explain(g.store.put(key, slices.Clone(value)))
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
		remind := time.AfterFunc(voteReminder, func() {
			g.run.Tell(fmt.Sprintf("the processes %s have not voted on %q for %v",
				listed(g.store.silent(name)), name, voteReminder))
		})
		defer remind.Stop()
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
	if answer, ok := status.FromError(err); ok {
		err = errors.New(shown(answer.Message()))
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

func (g *Group) name(rank int, host string) string {
	return fmt.Sprintf("process %d of %d (on %s)", rank, g.place.Size, shown(host))
}

func (g *Group) goneError(rank int, host, failure string) error {
	if failure == "" {
		return fmt.Errorf("%s is gone: its connection has ended", g.name(rank, host))
	}
	return fmt.Errorf("%s has failed: %s", g.name(rank, host), shown(failure))
}

// over says why a context has ended. That it was interrupted has one error only, whatever the signal.
func over(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return context.Cause(ctx)
}

// shown is a text of another process, for messages: one line, of a bounded length.
func shown(text string) string { return safetext.Line(text[:min(len(text), 4<<10)]) }

// listed lists numbers of processes, the first ones if there are many.
func listed(ranks []int) string {
	const most = 8
	if len(ranks) <= most {
		return fmt.Sprint(ranks)
	}
	return fmt.Sprintf("%v and %d others", ranks[:most], len(ranks)-most)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
