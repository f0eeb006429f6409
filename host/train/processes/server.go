package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
)

type server struct {
	wire.UnimplementedProcessesServer
	g        *Group
	token    string
	at       net.Addr // address of the listener
	mu       sync.Mutex
	there    map[int]string // hosts of the joined processes, by rank
	left     int
	changed  chan struct{} // closed and replaced when a process joins or leaves
	complete chan struct{}
	over     chan struct{} // closed when process 0 leaves
}

func (g *Group) serve(ctx context.Context) error {
	listener, err := g.listen(ctx)
	if err != nil {
		return fmt.Errorf("process 0 cannot listen at %s: %w", g.position.Address, err)
	}
	// Write the token before any call is answered, but only if this process owns the address.
	token, err := writeToken(g.run.Dir)
	if err != nil {
		listener.Close()
		return fmt.Errorf("process 0 of %d cannot write the token file: %w", g.position.Size, err)
	}
	defer func() {
		if err := removeToken(g.run.Dir, token); err != nil {
			g.run.Tell(fmt.Sprint("a file that is no longer needed could not be removed: ", err))
		}
	}()
	g.store = newStore(g.position.Size, voteTimeout, g.gone)
	s := &server{
		g: g, token: token, at: listener.Addr(), there: map[int]string{},
		changed: make(chan struct{}), complete: make(chan struct{}), over: make(chan struct{}),
	}
	// These limits leave unauthorized clients only some connections, each for a short time.
	const strangers, calls, header = 64, 256, 16 << 10
	listener = netutil.LimitListener(listener, g.position.Size+strangers)
	rpc := grpc.NewServer(
		grpc.InTapHandle(s.admit), grpc.ConnectionTimeout(keepaliveInterval),
		grpc.MaxConcurrentStreams(calls), grpc.MaxHeaderListSize(header),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveInterval, Timeout: keepaliveTimeout, MaxConnectionIdle: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveInterval, PermitWithoutStream: true,
		}),
	)
	wire.RegisterProcessesServer(rpc, s)
	go func() {
		if err := rpc.Serve(listener); err != nil {
			g.lose(fmt.Errorf("process 0 of %d stopped listening: %w", g.position.Size, err))
		}
	}()
	var ended sync.Once
	g.end = func(failure string) {
		ended.Do(func() {
			if failure != "" {
				g.lose(g.goneError(0, g.host, failure))
			} else {
				s.await(g.gone, func() bool { return s.left == g.position.Size-1 })
			}
			close(s.over)
			stopped := make(chan struct{})
			go func() {
				rpc.GracefulStop()
				close(stopped)
			}()
			select {
			case <-stopped:
			case <-time.After(leaveTimeout):
				go rpc.Stop() // GracefulStop may wait for idle connections of unauthorized clients
			}
		})
	}
	remind := time.AfterFunc(reminder, func() { g.run.Tell(s.waits()) })
	defer remind.Stop()
	s.await(ctx.Done(), func() bool { return len(s.there) == g.position.Size-1 })
	// If all processes are canceled at once, others may be lost before this one is canceled. Its
	// own cancellation takes precedence.
	if err := g.Err(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		g.end("")
		return err
	}
	if ctx.Err() != nil {
		err := fmt.Errorf("of %d processes, ranks %s have not joined at %s: %w",
			g.position.Size, listed(s.missing()), g.position.Address, over(ctx))
		g.end("it no longer waits for the processes " + listed(s.missing()))
		return err
	}
	close(s.complete)
	return nil
}

// listen listens on the configured address only, not on all interfaces of the machine.
func (g *Group) listen(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(g.position.Address)
	if err != nil {
		return nil, err
	}
	addresses, err := g.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	// Prefer a network address to a loopback address that /etc/hosts may list, too.
	isNetwork := func(a netip.Addr) bool { return !a.IsLoopback() }
	loopback := slices.DeleteFunc(slices.Clone(addresses), isNetwork)
	addresses = append(slices.DeleteFunc(addresses, netip.Addr.IsLoopback), loopback...)
	var failed error
	for _, ip := range addresses {
		at := net.JoinHostPort(ip.Unmap().String(), port)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
		if err == nil {
			return listener, nil
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
	}
	return nil, fmt.Errorf("%w; want an address of this machine (%s) and a free port", failed, g.host)
}

// resolve waits until the name of a host resolves and returns its addresses.
func (g *Group) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, resolveTimeout, fmt.Errorf("%s has no address", host))
	defer cancel()
	remind := time.AfterFunc(reminder, func() {
		g.run.Tell(fmt.Sprintf("process 0 of %d is waiting until the host name %s resolves",
			g.position.Size, host))
	})
	defer remind.Stop()
	for {
		list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err == nil {
			return list, nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", over(ctx), err)
		}
	}
}

func (s *server) waits() string {
	text := fmt.Sprintf("of %d processes, ranks %s have not joined at %s yet",
		s.g.position.Size, listed(s.missing()), s.g.position.Address)
	if s.at.(*net.TCPAddr).IP.IsLoopback() {
		text += fmt.Sprintf("; process 0 listens at %s, which other machines cannot reach", s.at)
	}
	return text
}

// await waits until ready returns true, done is closed or a process is lost. It calls ready with
// the lock held.
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

// note updates the state of the server and wakes await.
func (s *server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) missing() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank := 1; rank < s.g.position.Size; rank++ {
		if _, there := s.there[rank]; !there {
			list = append(list, rank)
		}
	}
	return list
}

func (s *server) Attend(stream wire.Processes_AttendServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	rank := int(first.GetRank())
	s.note(func() {
		if err = s.check(first); err == nil {
			s.there[rank] = first.GetHost()
		}
	})
	if err != nil {
		return err
	}
	send := func(notice *wire.Notice) {
		if stream.Send(notice) != nil {
			s.g.lose(s.g.goneError(rank, first.GetHost(), ""))
		}
	}
	send(&wire.Notice{})
	words := make(chan *wire.Word, 1)
	go func() {
		defer close(words)
		if word, err := stream.Recv(); err == nil {
			words <- word
		}
	}()
	complete, slow := s.complete, time.NewTimer(reminder)
	defer slow.Stop()
	for {
		select {
		case <-slow.C:
			if complete != nil {
				send(&wire.Notice{Waits: s.waits()})
			}
		case <-complete:
			complete = nil
			send(&wire.Notice{Complete: true})
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

// check returns an error if the size or rank of a process is invalid, or a process with that rank
// has already joined. The caller must hold the lock.
func (s *server) check(w *wire.Word) error {
	rank, size := int(w.GetRank()), s.g.position.Size
	host, twice := s.there[rank]
	refused := ""
	switch {
	case int(w.GetSize()) != size:
		refused = fmt.Sprintf("it expects %d processes, but process 0 expects %d", w.GetSize(), size)
	case rank < 1 || rank >= size:
		refused = fmt.Sprintf("got rank %d, want 1 to %d", rank, size-1)
	case twice:
		refused = fmt.Sprintf("process %d has already joined, on %s", rank, shown(host))
	default:
		return nil
	}
	name := s.g.name(rank, w.GetHost())
	return status.Errorf(codes.FailedPrecondition, "%s is refused: %s", name, refused)
}

func (s *server) last(stream wire.Processes_AttendServer) error {
	if err := s.g.Err(); err != nil {
		return stream.Send(&wire.Notice{Gone: err.Error()})
	}
	return nil
}

func (s *server) Put(_ context.Context, e *wire.Entry) (*wire.Done, error) {
	return &wire.Done{}, s.g.store.put(e.GetKey(), e.GetValue())
}

func (s *server) Get(ctx context.Context, q *wire.Question) (*wire.Answer, error) {
	wait := time.Duration(q.GetWaitMilliseconds()) * time.Millisecond
	value, found, err := s.g.store.get(ctx, q.GetKey(), wait)
	return &wire.Answer{Found: found, Value: value}, err
}

func (s *server) Agree(ctx context.Context, v *wire.Vote) (*wire.Votes, error) {
	values, err := s.g.store.agree(ctx, v.GetName(), int(v.GetRank()), v.GetValue())
	return &wire.Votes{Values: values}, err
}
