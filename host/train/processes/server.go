package processes

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
)

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
