package processes

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/cage-qat/cage/host/train/processes/wire"
	"github.com/cage-qat/cage/internal/vfs"
)

// attend connects to process 0, which might not listen yet, and waits until all have joined.
func (g *Group) attend(ctx context.Context) error {
	known := &credential{dir: g.run.Dir}
	conn, err := grpc.NewClient("passthrough:///"+g.position.Address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(known),
		grpc.WithContextDialer(known.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: retries, MinConnectTimeout: keepaliveInterval,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 2 * keepaliveInterval, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}))
	if err != nil {
		return fmt.Errorf("process 0 at %s: %w", g.position.Address, err)
	}
	g.rpc = wire.NewProcessesClient(conn)
	// The stream outlives the call of Join.
	lasting, hangUp := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, hangUp)
	leave := func() {
		hangUp()
		conn.Close()
	}
	remind := time.AfterFunc(reminder, func() {
		g.run.Tell(fmt.Sprintf("process %d of %d waits for process 0 at %s%s",
			g.position.Rank, g.position.Size, g.position.Address, known.trouble()))
	})
	defer remind.Stop()
	stream, err := g.enter(lasting)
	reached := time.Now() // process 0 has answered
	for status.Code(err) == codes.Unauthenticated && ctx.Err() == nil {
		failed := known.refused()
		if time.Since(reached) > tokenTimeout {
			err = status.Errorf(codes.FailedPrecondition,
				"%s cannot read the token of process 0 at %s: %v. All processes must have the same run "+
					"directory: put it on a file system that their machines share, and give its absolute "+
					"path in train.out", g.name(g.position.Rank, g.host), g.position.Address, failed)
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
		return fmt.Errorf("process %d of %d waited for process 0 at %s: %w",
			g.position.Rank, g.position.Size, g.position.Address, over(ctx))
	case status.Code(err) == codes.FailedPrecondition:
		leave()
		return errors.New(shown(status.Convert(err).Message()))
	case err != nil:
		leave()
		return fmt.Errorf("process 0 at %s: %w", g.position.Address, err)
	case notice.GetGone() != "":
		leave()
		return errors.New(shown(notice.GetGone()))
	}
	ended := make(chan struct{})
	leaves := make(chan struct{}) // closed before this process announces that it leaves
	go func() {
		defer close(ended)
		notice, err := stream.Recv()
		switch {
		case err == nil:
			g.lose(errors.New(shown(notice.GetGone())))
		case isClosed(leaves):
		default:
			g.lose(fmt.Errorf("process 0 of %d (at %s) is gone: its connection has ended",
				g.position.Size, g.position.Address))
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
				<-ended // process 0 waits for all; if it ends early, the stream ends
				return
			}
			select {
			case <-ended:
			case <-time.After(leaveTimeout):
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
	word := &wire.Word{Rank: int32(g.position.Rank), Size: int32(g.position.Size), Host: g.host}
	// Send returns io.EOF if the stream was closed; Recv then returns the reason.
	if err := stream.Send(word); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

// Process 0 writes a random token to the run's checkpoint directory before it accepts calls, and
// removes it when all processes have joined. A process that knows the token has the same directory,
// was not started for an earlier attempt at this run, and has the user's permissions, because the
// file is private. A scheduler's job ID would prove none of this, and could be guessed.

const tokenFile = ".processes"

const tokenMark = "cage: token of processes that begin to train in this directory\n"

// tokenLimit is the number of bytes of the token file that are read.
const tokenLimit = 256

// tokenKey is the gRPC metadata key under which calls carry the token.
const tokenKey = "cage-token"

// writeToken generates a token and writes it to a file in dir. It replaces the token file of a
// process that was killed, but not a file that cage did not write.
func writeToken(dir vfs.Path) (token string, err error) {
	if err := dir.MkdirAll(); err != nil {
		return "", err
	}
	path := dir.Join(tokenFile)
	if _, err := path.Lstat(); !errors.Is(err, fs.ErrNotExist) {
		text, err := readFile(path)
		incomplete := strings.HasPrefix(tokenMark, text)
		if err == nil && !incomplete && !strings.HasPrefix(text, tokenMark) {
			err = fmt.Errorf("%s already exists and was not written by cage", path)
		}
		if err != nil {
			return "", err
		}
		if err := path.Remove(); err != nil {
			return "", err
		}
	}
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	token = rand.Text()
	_, err = io.WriteString(f, tokenMark+token)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, path.Remove())
	}
	return token, nil
}

func readToken(dir vfs.Path) (string, error) {
	path := dir.Join(tokenFile)
	text, err := readFile(path)
	if err != nil {
		return "", err
	}
	token, marked := strings.CutPrefix(text, tokenMark)
	if !marked || token == "" || strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return "", fmt.Errorf("%s has no token", path)
	}
	return token, nil
}

// removeToken removes the token file from dir, unless another process has replaced the token.
func removeToken(dir vfs.Path, token string) error {
	now, err := readToken(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now != token {
		return nil
	}
	if err != nil {
		return err
	}
	return dir.Join(tokenFile).Remove()
}

// readFile reads the first tokenLimit bytes of a file. It does not follow symbolic links.
func readFile(path vfs.Path) (string, error) {
	f, err := path.OpenFile(os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, tokenLimit))
	return string(text), errors.Join(err, f.Close())
}

func (s *server) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	got := call.Header.Get(tokenKey)
	if len(got) == 1 && subtle.ConstantTimeCompare([]byte(got[0]), []byte(s.token)) == 1 {
		return ctx, nil
	}
	return nil, status.Error(codes.Unauthenticated, "this process was rejected because it does not "+
		"have the current token: it is from an earlier attempt, or has another run directory")
}

// credential adds the token to each call. It reads the token once the first call has connected to
// process 0, which has written it by then.
type credential struct {
	dir   vfs.Path
	mu    sync.Mutex
	token string
	err   error // of the connection to process 0, or of reading the token
}

func (c *credential) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return conn, err
}

// trouble returns the last error as a suffix for the message that the process is waiting, or "".
func (c *credential) trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return ""
	}
	return ": " + c.err.Error()
}

func (c *credential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == "" {
		c.token, c.err = readToken(c.dir)
	}
	return map[string]string{tokenKey: c.token}, nil
}

func (c *credential) RequireTransportSecurity() bool { return false }

// refused returns the reason why process 0 has rejected the token. It drops the token, so that the
// next call reads it again.
func (c *credential) refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		c.token, c.err = "", fmt.Errorf("%s has another token", c.dir.Join(tokenFile))
	}
	return c.err
}
