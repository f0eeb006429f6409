package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
)

// attend goes to process 0, which may not listen yet, and waits until all are there.
func (g *Group) attend(ctx context.Context) error {
	known := &credential{dir: g.run.Dir}
	conn, err := grpc.NewClient("passthrough:///"+g.place.Address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(known),
		grpc.WithContextDialer(known.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retries, MinConnectTimeout: silence}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 2 * silence, Timeout: reply, PermitWithoutStream: true,
		}))
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
	remind := time.AfterFunc(reminder, func() {
		g.run.Tell(fmt.Sprintf("process %d of %d waits for process 0 at %s%s",
			g.place.Rank, g.place.Size, g.place.Address, known.trouble()))
	})
	defer remind.Stop()
	var refused time.Time // for the first time
	stream, err := g.enter(lasting)
	for status.Code(err) == codes.Unauthenticated {
		failed := known.refused()
		if refused.IsZero() {
			refused = time.Now()
		}
		if time.Since(refused) > visible {
			err = g.report(lasting, failed)
			break
		}
		select {
		case <-time.After(retries.BaseDelay):
		case <-ctx.Done():
		}
		stream, err = g.enter(lasting)
	}
	remind.Stop()
	var notice *wire.Notice
	for err == nil && !notice.GetComplete() && notice.GetGone() == "" {
		if notice, err = stream.Recv(); notice.GetWaits() != "" {
			g.run.Tell(shown(notice.GetWaits()))
		}
	}
	switch {
	case !stop(): // ctx has ended
		leave()
		return fmt.Errorf("process %d of %d has waited for the others at %s: %w",
			g.place.Rank, g.place.Size, g.place.Address, over(ctx))
	case status.Code(err) == codes.FailedPrecondition:
		leave()
		return errors.New(shown(status.Convert(err).Message()))
	case err != nil:
		leave()
		return fmt.Errorf("process 0 at %s: %w", g.place.Address, err)
	case notice.GetGone() != "":
		leave()
		return errors.New(shown(notice.GetGone()))
	}
	ended := make(chan struct{})
	leaves := make(chan struct{}) // closed before this process says that it leaves
	go func() {
		defer close(ended)
		notice, err := stream.Recv()
		switch {
		case err == nil:
			g.lose(errors.New(shown(notice.GetGone())))
		case isClosed(leaves):
		default:
			g.lose(fmt.Errorf("process 0 of %d (at %s) is gone: its connection has ended", g.place.Size, g.place.Address))
		}
	}()
	var once sync.Once
	g.end = func(failure string) {
		once.Do(func() {
			close(leaves)
			defer leave()
			if stream.Send(&wire.Word{Leaves: true, Failure: failure}) != nil {
				return
			}
			if failure == "" {
				<-ended // process 0 waits for all; its own end is noticed
				return
			}
			select {
			case <-ended:
			case <-time.After(farewell):
			}
		})
	}
	return nil
}

func (g *Group) enter(ctx context.Context) (wire.Processes_AttendClient, error) {
	stream, err := g.rpc.Attend(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	// After io.EOF, what has been received says why.
	if err := stream.Send(g.word()); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

// word is what this process says of itself.
func (g *Group) word() *wire.Word {
	return &wire.Word{Rank: int32(g.place.Rank), Size: int32(g.place.Size), Host: g.host}
}

// report tells process 0 that this process cannot read the token, and why. It returns the error of all.
func (g *Group) report(ctx context.Context, failed error) error {
	word := g.word()
	word.Failure = failed.Error()
	_, err := g.rpc.Unseen(metadata.AppendToOutgoingContext(ctx, runKey, g.run.Digest), word)
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.OK {
		return err
	}
	return status.Errorf(codes.FailedPrecondition,
		"%s cannot read the token of process 0 at %s, which also has another configuration: %v. %s",
		g.name(g.place.Rank, g.host), g.place.Address, failed, advice)
}

// advice is what to do about run directories that differ.
const advice = "All processes must have the same run directory: put it on a file system that their " +
	"machines share, and give its absolute path in train.out"
