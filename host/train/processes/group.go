// Package processes lets the processes of one training, on one machine or several, find each other, share small values, agree on
// what each of them is to do, and notice that one of them is gone. Process 0 keeps the values, and the others reach it over gRPC.
//
// It moves no tensors: that is the device's business, which exchanges through it what it needs to connect its own parts.
package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
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

// server is process 0, as the others see it.
type server struct {
	wire.UnimplementedProcessesServer
	g        *Group
	mu       sync.Mutex
	there    map[int]string // hosts by rank
	left     int
	changed  chan struct{} // closed and renewed when one comes or leaves
	complete chan struct{}
	over     chan struct{} // closed when process 0 leaves
}

// serve listens, and waits for the others.
func (g *Group) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", listenAt(g.place.Address))
	if err != nil {
		return fmt.Errorf("process 0 of %d cannot listen at %s: %w", g.place.Size, g.place.Address, err)
	}
	g.store = newStore(g.place.Size, g.gone)
	s := &server{g: g, there: map[int]string{}, changed: make(chan struct{}), complete: make(chan struct{}), over: make(chan struct{})}
	rpc := grpc.NewServer(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silence, Timeout: reply}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: silence, PermitWithoutStream: true}),
	)
	wire.RegisterProcessesServer(rpc, s)
	go func() {
		if err := rpc.Serve(listener); err != nil {
			g.lose(fmt.Errorf("process 0 of %d does not listen any more: %w", g.place.Size, err))
		}
	}()
	var ended sync.Once
	g.end = func(failure string) {
		ended.Do(func() {
			if failure != "" {
				host, _ := os.Hostname() // for a message only
				g.lose(g.goneError(0, host, failure))
			} else {
				s.await(g.gone, func() bool { return s.left == g.place.Size-1 })
			}
			close(s.over)
			stop := time.AfterFunc(farewell, rpc.Stop) // for those that do not answer
			defer stop.Stop()
			rpc.GracefulStop()
		})
	}
	s.await(ctx.Done(), func() bool { return len(s.there) == g.place.Size-1 })
	if err := g.Err(); err != nil {
		g.end("")
		return err
	}
	if ctx.Err() != nil {
		err := fmt.Errorf("of %d processes, those with the numbers %v have not come to %s: %w", g.place.Size, s.missing(), g.place.Address, ctx.Err())
		g.end("waits no longer for the processes " + fmt.Sprint(s.missing()))
		return err
	}
	close(s.complete)
	return nil
}

// listenAt is where to listen for an address: at every network of the machine, except where the address is one that other machines
// cannot reach.
func listenAt(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
		return address
	}
	return ":" + port
}

// await returns when ready, which is called with the lock, or when the channel is closed or a process is gone.
func (s *server) await(done <-chan struct{}, ready func() bool) {
	for {
		s.mu.Lock()
		is, changed := ready(), s.changed
		s.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-done:
			return
		case <-s.g.gone:
			return
		}
	}
}

// note changes what is known of the others.
func (s *server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// missing lists those that have not come.
func (s *server) missing() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank := 1; rank < s.g.place.Size; rank++ {
		if _, there := s.there[rank]; !there {
			list = append(list, rank)
		}
	}
	return list
}

// Attend implements the protocol: it lasts as long as the other process is there.
func (s *server) Attend(stream wire.Processes_AttendServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	rank, size := int(first.GetRank()), s.g.place.Size
	refused := ""
	s.note(func() {
		host, twice := s.there[rank]
		switch {
		case int(first.GetSize()) != size:
			refused = fmt.Sprintf("it counts %d processes, and process 0 counts %d", first.GetSize(), size)
		case rank < 1 || rank >= size:
			refused = fmt.Sprintf("there is no process %d of %d", rank, size)
		case twice:
			refused = fmt.Sprintf("process %d is there already, on %s", rank, host)
		default:
			s.there[rank] = first.GetHost()
		}
	})
	if refused != "" {
		return status.Errorf(codes.FailedPrecondition, "%s is refused: %s", s.g.name(rank, first.GetHost()), refused)
	}
	words := make(chan *wire.Word, 1)
	go func() {
		defer close(words)
		if word, err := stream.Recv(); err == nil {
			words <- word
		}
	}()
	complete := s.complete
	for {
		select {
		case <-complete:
			complete = nil
			if err := stream.Send(&wire.Notice{Complete: true}); err != nil {
				s.g.lose(s.g.goneError(rank, first.GetHost(), ""))
			}
		case word := <-words:
			if word.GetLeaves() && word.GetFailure() == "" {
				s.note(func() { s.left++ })
				select {
				case <-s.over:
				case <-s.g.gone:
				}
				return s.last(stream)
			}
			s.g.lose(s.g.goneError(rank, first.GetHost(), word.GetFailure()))
			return s.last(stream)
		case <-s.g.gone:
			return s.last(stream)
		}
	}
}

// last tells another process what it has to know when it is over.
func (s *server) last(stream wire.Processes_AttendServer) error {
	if err := s.g.Err(); err != nil {
		return stream.Send(&wire.Notice{Gone: err.Error()})
	}
	return nil
}

// Put implements the protocol.
func (s *server) Put(_ context.Context, e *wire.Entry) (*wire.Done, error) {
	s.g.store.put(e.GetKey(), e.GetValue())
	return &wire.Done{}, nil
}

// Get implements the protocol.
func (s *server) Get(ctx context.Context, q *wire.Question) (*wire.Answer, error) {
	value, found, err := s.g.store.get(ctx, q.GetKey(), time.Duration(q.GetWaitMilliseconds())*time.Millisecond)
	return &wire.Answer{Found: found, Value: value}, err
}

// Agree implements the protocol.
func (s *server) Agree(ctx context.Context, v *wire.Vote) (*wire.Votes, error) {
	values, err := s.g.store.agree(ctx, v.GetName(), int(v.GetRank()), v.GetValue())
	return &wire.Votes{Values: values}, err
}

// attend goes to process 0, which may not listen yet, and waits until all are there.
func (g *Group) attend(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///"+g.place.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retries, MinConnectTimeout: silence}), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * silence, Timeout: reply, PermitWithoutStream: true}))
	if err != nil {
		return fmt.Errorf("process 0 at %s: %w", g.place.Address, err)
	}
	g.rpc = wire.NewProcessesClient(conn)
	// The stream lasts longer than the call of Join.
	lasting, hangUp := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, hangUp)
	leave := func() {
		hangUp()
		conn.Close()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	stream, err := g.rpc.Attend(lasting, grpc.WaitForReady(true))
	if err == nil {
		err = stream.Send(&wire.Word{Rank: int32(g.place.Rank), Size: int32(g.place.Size), Host: host})
	}
	var notice *wire.Notice
	if err == nil {
		notice, err = stream.Recv()
	}
	switch {
	case !stop(): // ctx has ended
		leave()
		return fmt.Errorf("process %d of %d has waited for the others at %s: %w", g.place.Rank, g.place.Size, g.place.Address, context.Cause(ctx))
	case status.Code(err) == codes.FailedPrecondition:
		leave()
		return errors.New(status.Convert(err).Message())
	case err != nil:
		leave()
		return fmt.Errorf("process 0 at %s: %w", g.place.Address, err)
	case notice.GetGone() != "":
		leave()
		return errors.New(notice.GetGone())
	}
	over := make(chan struct{})
	leaves := make(chan struct{}) // closed before this process says that it leaves
	go func() {
		defer close(over)
		notice, err := stream.Recv()
		switch {
		case err == nil:
			g.lose(errors.New(notice.GetGone()))
		case isClosed(leaves):
		default:
			g.lose(fmt.Errorf("process 0 of %d (at %s) is gone: its connection has ended", g.place.Size, g.place.Address))
		}
	}()
	var ended sync.Once
	g.end = func(failure string) {
		ended.Do(func() {
			close(leaves)
			defer leave()
			if stream.Send(&wire.Word{Leaves: true, Failure: failure}) != nil {
				return
			}
			if failure == "" {
				<-over // process 0 waits for all; its own end is noticed
				return
			}
			select {
			case <-over:
			case <-time.After(farewell):
			}
		})
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
