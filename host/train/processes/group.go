// Package processes coordinates the processes of a training run on one or more machines: they
// rendezvous, share small values, vote, and detect when a process is lost. Process 0 stores the
// values, and the others connect to it over gRPC. Tensors are not transferred this way, but between
// devices, which use this package to exchange their addresses.
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
	// joinTimeout is the time limit for all processes to join. A cluster may start some late.
	joinTimeout = 10 * time.Minute
	// keepaliveInterval and keepaliveTimeout configure gRPC's keepalive pings and tolerate short
	// network outages. The end of a process closes its connection, which is detected at once.
	keepaliveInterval = 5 * time.Second
	keepaliveTimeout  = 15 * time.Second
	// leaveTimeout is the time limit for telling the other processes why a process has failed.
	leaveTimeout = 2 * time.Second
	// voteTimeout is the time limit of a vote. Before a process votes, it may compile, write its
	// part of a checkpoint, or verify all data, which takes hours on a slow disk. If its machine is
	// lost, keepalive pings detect that much earlier.
	voteTimeout = 6 * time.Hour
	// resolveTimeout is the time limit for process 0 to resolve its host name. DNS has the name of
	// a new pod only some time after the pod has started.
	resolveTimeout = time.Minute
)

// Timeouts that tests shorten.
var (
	// reminder is the time after which a process reports what it is waiting for.
	reminder = 10 * time.Second
	// voteReminder is the time after which process 0 reports which processes have not voted yet.
	voteReminder = 10 * time.Minute
	// tokenTimeout is the time limit for reading the token after connecting to process 0. On a
	// network file system, new files may become visible late.
	tokenTimeout = 30 * time.Second
)

// retries is the backoff for connection attempts while process 0 does not listen yet.
var retries = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2,
	MaxDelay: time.Second}

// Run holds the settings of a training run that its processes need.
type Run struct {
	// Dir is the directory to which the processes write their parts of checkpoints. A process with
	// another directory than process 0 is rejected.
	Dir vfs.Path
	// Tell receives messages about what a process is waiting for; nil discards them.
	Tell func(message string)
}

// Group is a process's connection to the other processes of the training run.
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

// errGone is returned by the store, which does not know which process was lost. See Group.explain.
var errGone = status.Error(codes.Unavailable, "a process of this training run was lost")

// Join connects to the other processes and returns when all have joined. Call Leave when done.
func Join(ctx context.Context, position Position, run Run) (*Group, error) {
	late := fmt.Errorf("the time limit of %v was exceeded", joinTimeout)
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
	// Messages on other machines contain the path, so make it absolute.
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

// Local returns the rank of this process among those on its machine, or -1 if it is unknown.
func (g *Group) Local() int { return g.position.Local }

// Gone returns a channel that is closed when a process fails or is lost before it calls Leave.
func (g *Group) Gone() <-chan struct{} { return g.gone }

// Err returns an error that names the lost process, or nil if no process was lost.
func (g *Group) Err() error {
	if isClosed(g.gone) {
		return g.err
	}
	return nil
}

// lose records the first loss of a process. Later losses are consequences of it and ignored.
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

// Get returns the value of a key. If there is none yet, Get waits for it, but not longer than wait;
// found is then false.
func (g *Group) Get(key string, wait time.Duration) (value []byte, found bool, err error) {
	if g.store != nil {
		value, found, err = g.store.get(context.Background(), key, wait)
		return value, found, g.explain(err)
	}
	question := &wire.Question{Key: key, WaitMilliseconds: wait.Milliseconds()}
	a, err := g.rpc.Get(context.Background(), question)
	return a.GetValue(), a.GetFound(), g.explain(err)
}

// Agree waits until all processes have called it with the same name and returns their values by
// rank. All processes must use the same names in the same order.
func (g *Group) Agree(name string, value int64) (values []int64, err error) {
	if g.store != nil {
		remind := time.AfterFunc(voteReminder, func() {
			g.run.Tell(fmt.Sprintf("ranks %s have not voted on %q for %v",
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

// explain replaces the error of a call with g.Err if a process was lost, which may become known a
// moment later.
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

// Leave disconnects this process. If err is nil, Leave waits until all others leave, too; otherwise
// it makes all others fail. Further calls do nothing.
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

// over returns the cause with which ctx has ended: context.Canceled if it was canceled.
func over(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return context.Cause(ctx)
}

// shown sanitizes text from another process for messages: as one line of limited length.
func shown(text string) string { return safetext.Line(text[:min(len(text), 4<<10)]) }

// listed formats a list of ranks, which it truncates if it is long.
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
