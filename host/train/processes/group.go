// Package processes coordinates the processes of one training run on one or several machines: they
// rendezvous, share small values, vote, and detect the loss of a process. Process 0 stores the
// values; all other processes connect to it over gRPC. It transfers no tensors: devices do that,
// and exchange through it the addresses that they need to connect.
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

// Timeouts.
const (
	// joinTimeout is the time limit for all processes to join: a cluster may start some late.
	joinTimeout = 10 * time.Minute
	// keepaliveInterval and keepaliveTimeout are those of keepalive pings: a network may pause for
	// some seconds. A process that ends closes its connection, which is detected at once.
	keepaliveInterval = 5 * time.Second
	keepaliveTimeout  = 15 * time.Second
	// leaveTimeout is the time in which all others receive the reason why a process has failed.
	leaveTimeout = 2 * time.Second
	// voteTimeout is the time limit of a vote. Before it votes, a process may compile
	// for minutes, write its part of a checkpoint, or read all data to verify it, for hours if the
	// disk is slow. The loss of its machine is detected much earlier, by keepalive pings.
	voteTimeout = 6 * time.Hour
	// resolveTimeout is the time limit for process 0 to resolve its host name: DNS knows a new pod
	// only some time after it has started.
	resolveTimeout = time.Minute
)

// Times that tests shorten.
var (
	// reminder is the time after which a process logs what it waits for.
	reminder = 10 * time.Second
	// voteReminder is the time after which process 0 logs which processes a vote still waits for.
	voteReminder = 10 * time.Minute
	// tokenTimeout is the time limit for a process that has reached process 0 to read the token: on a
	// network file system a new file may become visible late.
	tokenTimeout = 30 * time.Second
)

// retries is the backoff of connections to a process that does not listen yet.
var retries = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2,
	MaxDelay: time.Second}

// A Run has the settings of a training run for its processes.
type Run struct {
	// Dir is the directory into which each process writes its parts of checkpoints. Processes with
	// another directory are refused.
	Dir vfs.Path
	// Tell receives progress messages about waiting; nil discards them.
	Tell func(message string)
}

// A Group is the group of the processes of one training run, as used by one of them.
type Group struct {
	position Position
	run      Run
	host     string               // name of this machine
	store    *store               // in process 0 only
	rpc      wire.ProcessesClient // in all other processes
	end      func(failure string) // announces that this process leaves, with the reason of a failure

	once sync.Once
	gone chan struct{} // closed when a process is lost
	err  error         // names the lost process and the reason
}

// errGone is returned by the store, which does not know the error of the group.
var errGone = status.Error(codes.Unavailable, "a process of this training is gone")

// Join connects to the other processes, and returns when all have joined. Leave undoes it.
func Join(ctx context.Context, position Position, run Run) (*Group, error) {
	late := fmt.Errorf("the time limit of %v is over", joinTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, joinTimeout, late)
	defer cancel()
	g := &Group{position: position, run: run, gone: make(chan struct{})}
	if g.run.Tell == nil {
		g.run.Tell = func(string) {}
	}
	var err error
	if g.host, err = os.Hostname(); err != nil {
		g.host = "an unknown host"
	}
	// Absolute, because messages on other machines name it.
	if g.run.Dir.Name, err = filepath.Abs(run.Dir.Name); err != nil {
		return nil, err
	}
	if position.Rank == 0 {
		return g, g.serve(ctx)
	}
	return g, g.attend(ctx)
}

// Rank returns the rank of this process, from 0.
func (g *Group) Rank() int { return g.position.Rank }

// Size returns the number of processes.
func (g *Group) Size() int { return g.position.Size }

// Local returns the local rank of this process on its machine, -1 if it is not known.
func (g *Group) Local() int { return g.position.Local }

// Gone returns a channel that is closed when a process ends or is lost before its work is done.
func (g *Group) Gone() <-chan struct{} { return g.gone }

// Err returns an error that names the lost process; nil if there is none.
func (g *Group) Err() error {
	select {
	case <-g.gone:
		return g.err
	default:
		return nil
	}
}

// lose records the loss of a process, if it is the first one: later losses are consequences of it.
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

// Get returns the value of a key; if there is none yet, it waits for it at most that long.
func (g *Group) Get(key string, wait time.Duration) (value []byte, found bool, err error) {
	if g.store != nil {
		value, found, err = g.store.get(context.Background(), key, wait)
		return value, found, g.explain(err)
	}
	question := &wire.Question{Key: key, WaitMilliseconds: wait.Milliseconds()}
	a, err := g.rpc.Get(context.Background(), question)
	return a.GetValue(), a.GetFound(), g.explain(err)
}

// Agree returns the values of all processes, by rank. All must use the same names in order.
func (g *Group) Agree(name string, value int64) (values []int64, err error) {
	if g.store != nil {
		remind := time.AfterFunc(voteReminder, func() {
			g.run.Tell(fmt.Sprintf("the processes %s have not voted on %q for %v",
				listed(g.store.silent(name)), name, voteReminder))
		})
		defer remind.Stop()
		values, err = g.store.agree(context.Background(), name, g.position.Rank, value)
		return values, g.explain(err)
	}
	vote := &wire.Vote{Name: name, Rank: int32(g.position.Rank), Value: value}
	v, err := g.rpc.Agree(context.Background(), vote)
	return v.GetValues(), g.explain(err)
}

// explain replaces the error of a call by that of the group, which may arrive a moment later.
func (g *Group) explain(err error) error {
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled {
		select {
		case <-g.gone:
			return g.err
		case <-time.After(leaveTimeout):
		}
	}
	if answer, ok := status.FromError(err); ok {
		err = errors.New(shown(answer.Message()))
	}
	return fmt.Errorf("process 0 at %s: %w", g.position.Address, err)
}

// Leave ends the membership of this process. Without an error it waits until all others leave, too.
// With an error, it makes all others fail. Further calls do nothing.
func (g *Group) Leave(err error) {
	if err == nil {
		g.end("")
		return
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	g.end(text)
}

func (g *Group) name(rank int, host string) string {
	return fmt.Sprintf("process %d of %d (on %s)", rank, g.position.Size, shown(host))
}

func (g *Group) goneError(rank int, host, failure string) error {
	if failure == "" {
		return fmt.Errorf("%s is gone: its connection has ended", g.name(rank, host))
	}
	return fmt.Errorf("%s has failed: %s", g.name(rank, host), shown(failure))
}

// over returns the cause of the end of a context; for a cancellation always context.Canceled.
func over(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return context.Cause(ctx)
}

// shown sanitizes a text of another process for messages: one line, of bounded length.
func shown(text string) string { return safetext.Line(text[:min(len(text), 4<<10)]) }

// listed formats a list of ranks, truncated if it is long.
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
