package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
)

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
