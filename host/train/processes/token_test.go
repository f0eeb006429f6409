package processes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/host/train/processes/wire"
	"github.com/cage-qat/cage/internal/vfs"
)

// begin starts to join, and returns a channel for the outcome.
func begin(ctx context.Context, position Position, run Run) <-chan outcome {
	joined := make(chan outcome, 1)
	go func() {
		g, err := Join(ctx, position, run)
		joined <- outcome{g, err}
	}()
	return joined
}

type outcome struct {
	*Group
	err error
}

// awaitToken waits for the token in a run directory, and returns it.
func awaitToken(t *testing.T, run Run) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
		if token, err := readToken(run.Dir); err == nil {
			return token
		}
	}
	t.Fatal("there is no token")
	return ""
}

// dial returns a client of process 0 that is not in the group.
func dial(t *testing.T, at string) wire.ProcessesClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+at,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return wire.NewProcessesClient(conn)
}

// TestStrangers checks that a client without the token can neither join nor vote, store values or
// end the attempt of others.
func TestStrangers(t *testing.T) {
	at, run := address(t), newRun(t)
	zero := begin(t.Context(), Position{0, 2, at, -1}, run)
	token := awaitToken(t, run)
	calls := func(when string) {
		t.Helper()
		for name, ctx := range map[string]context.Context{
			"without a token": t.Context(),
			"another token": metadata.AppendToOutgoingContext(t.Context(), tokenKey,
				strings.Repeat("A", len(token))),
			"two tokens": metadata.AppendToOutgoingContext(t.Context(), tokenKey, token, tokenKey,
				token),
			"an empty one": metadata.AppendToOutgoingContext(t.Context(), tokenKey, ""),
		} {
			stranger, word := dial(t, at), &wire.Word{Rank: 1, Size: 2, Host: "elsewhere"}
			_, put := stranger.Put(ctx, &wire.Entry{Key: "k", Value: make([]byte, 1<<20)})
			_, get := stranger.Get(ctx, &wire.Question{Key: "k"})
			_, vote := stranger.Agree(ctx, &wire.Vote{Name: "x", Rank: 1})
			stream, attend := stranger.Attend(ctx)
			if attend == nil {
				stream.Send(word)
				_, attend = stream.Recv()
			}
			for i, err := range []error{put, get, vote, attend} {
				if status.Code(err) != codes.Unauthenticated {
					t.Errorf("%s, %s: call %d ends with %v", when, name, i, err)
				}
			}
		}
	}
	calls("before")
	one := begin(t.Context(), Position{1, 2, at, -1}, run)
	groups := []outcome{<-zero, <-one}
	for rank, o := range groups {
		if o.err != nil {
			t.Fatalf("process %d: %v", rank, o.err)
		}
	}
	calls("after")
	if n := len(groups[0].store.values) + len(groups[0].store.ballots); n > 0 {
		t.Errorf("%d values and votes of strangers are kept", n)
	}
	vote(t, groups[0].Group, groups[1].Group)
}

// vote fails unless all vote and leave.
func vote(t *testing.T, groups ...*Group) {
	t.Helper()
	var wait sync.WaitGroup
	for rank, g := range groups {
		wait.Go(func() {
			if values, err := g.Agree("x", int64(10*rank)); err != nil || len(values) != len(groups) ||
				values[1] != 10 {
				t.Errorf("process %d votes, and gets %v, %v", rank, values, err)
			}
			g.Leave(nil)
		})
	}
	wait.Wait()
}

// TestSilentStrangers checks that connections that send nothing neither keep a process from joining
// nor process 0 from ending.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	at, run := address(t), newRun(t)
	zero := begin(t.Context(), Position{0, 2, at, -1}, run)
	awaitToken(t, run)
	for range 60 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	one := <-begin(t.Context(), Position{1, 2, at, -1}, run)
	if one.err != nil {
		t.Fatal(one.err)
	}
	vote(t, (<-zero).Group, one.Group)
}

// TestUnseen checks that a process with another run directory than process 0 ends when it joins.
func TestUnseen(t *testing.T) {
	for name, elsewhere := range map[string]func(t *testing.T) (run Run, says string){
		"nothing there": func(t *testing.T) (Run, string) { return newRun(t), "no such file" },
		"what an earlier attempt has left": func(t *testing.T) (Run, string) {
			run := newRun(t)
			if _, err := writeToken(run.Dir); err != nil {
				t.Fatal(err)
			}
			return run, "has another token"
		},
		"something else": func(t *testing.T) (Run, string) {
			run := newRun(t)
			run.Dir = vfs.At(t.TempDir())
			if err := os.WriteFile(run.Dir.Join(tokenFile).Name, []byte("mine\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return run, "has no token"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, run := address(t), newRun(t)
			other, says := elsewhere(t)
			ctx, cancel := context.WithCancel(t.Context())
			zero := begin(ctx, Position{0, 2, at, -1}, run)
			cmd, output := start(t, 1, 2, at, other)
			cmd.Wait()
			host, _ := os.Hostname()
			for _, want := range []string{"process 1 of 2", "of process 0 at " + at, other.Dir.Name, "on " +
				host, says, "share", "absolute path"} {
				if !strings.Contains(output.String(), want) {
					t.Errorf("process 1 ends with %q, want %q in it", output, want)
				}
			}
			select {
			case o := <-zero:
				t.Errorf("process 0 ends with %v", o.err)
			default:
			}
			cancel()
			<-zero
			if left, _ := run.Dir.ReadDir(); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestEarlierAttempt checks that a process of an ended attempt does not take part in the next one
// at the same address.
func TestEarlierAttempt(t *testing.T) {
	at, run := address(t), newRun(t)
	first, _ := start(t, 0, 2, at, run)
	old := <-begin(t.Context(), Position{1, 2, at, -1}, run)
	if old.err != nil {
		t.Fatal(old.err)
	}
	first.Process.Kill()
	first.Wait()
	<-old.Gone()

	zero := begin(t.Context(), Position{0, 2, at, -1}, run)
	one := <-begin(t.Context(), Position{1, 2, at, -1}, run)
	next := <-zero
	if one.err != nil || next.err != nil {
		t.Fatal(one.err, next.err)
	}
	for name, call := range map[string]func() error{
		"vote":  func() error { _, err := old.Agree("x", 5); return err },
		"put":   func() error { return old.Put("k", nil) },
		"leave": func() error { old.Leave(nil); return nil },
	} {
		if err := call(); name != "leave" && (err == nil || !strings.Contains(err.Error(), "gone") &&
			!strings.Contains(err.Error(), "earlier attempt")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(next.store.values) + len(next.store.ballots); n > 0 {
		t.Errorf("%d values and votes of an earlier attempt are kept", n)
	}
	vote(t, next.Group, one.Group)
}

// TestKilledWhileJoining checks that neither the token of a process 0 that was killed while it
// waited, nor a process that starts before the next process 0, disturbs the next attempt.
func TestKilledWhileJoining(t *testing.T) {
	at, run := address(t), newRun(t)
	killed, _ := start(t, 0, 2, at, run)
	token := awaitToken(t, run)
	killed.Process.Kill()
	killed.Wait()
	one := begin(t.Context(), Position{1, 2, at, -1}, run)
	time.Sleep(200 * time.Millisecond)
	zero := <-begin(t.Context(), Position{0, 2, at, -1}, run)
	joined := <-one
	if zero.err != nil || joined.err != nil {
		t.Fatal(zero.err, joined.err)
	}
	if now, err := readToken(run.Dir); err == nil {
		t.Errorf("the token %s is left, which was %s", now, token)
	}
	vote(t, zero.Group, joined.Group)
}

// TestTokenFile checks that only its user can access the token file, and that no file that cage has
// not written is replaced, read or removed.
func TestTokenFile(t *testing.T) {
	dir := vfs.At(filepath.Join(t.TempDir(), "a", "run"))
	path := dir.Join(tokenFile)
	first, err := writeToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := path.Lstat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	second, err := writeToken(dir)
	if err != nil || second == first {
		t.Errorf("the token of the next attempt is %s, after %s: %v", second, first, err)
	}
	if err := removeToken(dir, first); err != nil {
		t.Error(err)
	}
	if now, err := readToken(dir); now != second {
		t.Errorf("the token of another attempt was removed: %v", err)
	}
	if err := removeToken(dir, second); err != nil {
		t.Error(err)
	}
	if there, err := path.Exists(); there || err != nil {
		t.Errorf("it is left: %v", err)
	}
	if err := removeToken(dir, second); err != nil {
		t.Errorf("what is gone is removed again: %v", err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	for name, c := range map[string]struct {
		make func() error
		ok   bool
	}{
		"incomplete": {
			func() error { return os.WriteFile(path.Name, []byte(tokenMark[:9]), 0o600) }, true},
		"empty": {func() error { return os.WriteFile(path.Name, nil, 0o600) }, true},
		"somebody else's": {
			func() error { return os.WriteFile(path.Name, []byte("notes"), 0o600) }, false},
		"a link to ours":           {func() error { return os.Symlink(victim, path.Name) }, false},
		"a link that leads astray": {func() error { return os.Symlink(victim+"no", path.Name) }, false},
		"a directory":              {func() error { return os.Mkdir(path.Name, 0o755) }, false},
		"a pipe":                   {func() error { return syscall.Mkfifo(path.Name, 0o600) }, false},
	} {
		if err := os.WriteFile(victim, []byte(tokenMark+"A"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		before, err := path.Lstat()
		if err != nil {
			t.Fatal(err)
		}
		token, err := writeToken(dir)
		after, lost := path.Lstat()
		if c.ok != (err == nil) || lost != nil || !c.ok && !vfs.SameFile(before, after) {
			t.Errorf("%s: %s, %v; it is %v, %v", name, token, err, after, lost)
		}
		if token, err := readToken(dir); c.ok != (err == nil) {
			t.Errorf("%s: the token is %s, %v", name, token, err)
		}
		if err := removeToken(dir, "A"); c.ok != (err == nil) {
			t.Errorf("%s: removing: %v", name, err)
		}
		if text, err := os.ReadFile(victim); string(text) != tokenMark+"A" {
			t.Errorf("%s: what a link leads to is %q, %v", name, text, err)
		}
		if err := path.RemoveAll(); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path.Name, []byte(tokenMark+"A\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := readToken(dir); err == nil {
		t.Errorf("%q is taken for a token", token)
	}
}

// TestForgedNames checks that names and errors from other processes are escaped and truncated.
func TestForgedNames(t *testing.T) {
	at, run := address(t), newRun(t)
	zero := begin(t.Context(), Position{0, 2, at, -1}, run)
	ctx := metadata.AppendToOutgoingContext(t.Context(), tokenKey, awaitToken(t, run))
	stream, err := dial(t, at).Attend(ctx)
	if err != nil {
		t.Fatal(err)
	}
	forged := "node\n12:00:00 [INFO] all is well\x1b[2J" + strings.Repeat("x", 1<<20)
	if err := stream.Send(&wire.Word{Rank: 1, Size: 2, Host: forged}); err != nil {
		t.Fatal(err)
	}
	g := <-zero
	if g.err != nil {
		t.Fatal(g.err)
	}
	if err := stream.Send(&wire.Word{Leaves: true, Failure: forged}); err != nil {
		t.Fatal(err)
	}
	<-g.Gone()
	if text := g.Err().Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 16<<10 ||
		!strings.Contains(text, `on node\n12:00:00`) {
		t.Errorf("process 0 says %.200q of %d bytes", text, len(text))
	}
	g.Leave(g.Err())
}

// TestBounds checks that everything that process 0 stores is bounded.
func TestBounds(t *testing.T) {
	s := newStore(3, 20*time.Millisecond, nil)
	for name, c := range map[string]struct {
		key   string
		value int
	}{"key": {strings.Repeat("k", maxKey+1), 0}, "value": {"k", maxValue + 1}} {
		if err := s.put(c.key, make([]byte, c.value)); err == nil ||
			!strings.Contains(err.Error(), "want at most") {
			t.Errorf("a %s that is too large: %v", name, err)
		}
	}
	full := make([]byte, maxValue)
	for i := range maxBytes / maxValue {
		if err := s.put(fmt.Sprint(i), full); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.put("more", []byte{1}); err == nil {
		t.Error("more bytes are kept than there may be")
	}
	for range 3 { // a value that replaces another counts once
		if err := s.put("0", full[:1]); err != nil {
			t.Error(err)
		}
	}
	var err error
	for i := 0; err == nil && i <= maxValues; i++ {
		err = s.put(fmt.Sprint("small ", i), nil)
	}
	if err == nil || len(s.values) != maxValues {
		t.Errorf("%d values are kept, %v", len(s.values), err)
	}
	if err := s.put("0", nil); err != nil {
		t.Errorf("a value that is known cannot be set any more: %v", err)
	}
	if _, err := s.agree(t.Context(), strings.Repeat("x", maxKey+1), 0, 0); err == nil {
		t.Error("a vote has any name")
	}
	if _, err := s.agree(t.Context(), "x", 1, 0); err == nil ||
		!strings.Contains(err.Error(), `[0 2] have not voted on "x" within 20ms`) {
		t.Errorf("a vote that does not end: %v", err)
	}
	s.limit = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range maxBallots - 1 {
		s.agree(ctx, fmt.Sprint(i), 0, 0)
	}
	if _, err := s.agree(ctx, "more", 0, 0); err == nil ||
		!strings.Contains(err.Error(), "are pending already") {
		t.Errorf("another vote: %v", err)
	}
	ranks := make([]int, 1000)
	for i := range ranks {
		ranks[i] = i
	}
	if text := listed(ranks); text != "[0 1 2 3 4 5 6 7] and 992 others" {
		t.Errorf("1000 processes are listed as %s", text)
	}
}

// TestLargeValues checks the bounds between processes, and that the largest value arrives.
func TestLargeValues(t *testing.T) {
	groups := join(t, 2, 0, 1)
	for _, g := range groups {
		if err := g.Put("k", make([]byte, maxValue+1)); err == nil ||
			!strings.Contains(err.Error(), "want at most") || strings.Contains(err.Error(), "rpc error") {
			t.Errorf("process %d: %v", g.Rank(), err)
		}
		if err := g.Put("k", make([]byte, 8<<20)); err == nil {
			t.Errorf("process %d sends 8 MiB", g.Rank())
		}
		if err := g.Put("k", make([]byte, maxValue)); err != nil {
			t.Error(err)
		}
	}
	for _, g := range groups {
		if value, found, err := g.Get("k", 0); len(value) != maxValue || !found || err != nil {
			t.Errorf("process %d gets %d bytes, %t, %v", g.Rank(), len(value), found, err)
		}
	}
	vote(t, groups...)
}

// TestListen checks that process 0 listens at the given address, or reports that it cannot.
func TestListen(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	if err := (<-begin(t.Context(), Position{0, 2, "192.0.2.1:29500", -1},
		newRun(t))).err; err == nil ||
		!strings.Contains(err.Error(), "cannot listen at 192.0.2.1:29500") ||
		!strings.Contains(err.Error(), "want an address of this machine ("+host) {
		t.Errorf("an address of no machine: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var told sync.Map
	run := newRun(t)
	run.Tell = func(message string) { told.Store(message, true) }
	if err := (<-begin(ctx, Position{0, 2, "nobody.invalid:29500", -1}, run)).err; err == nil ||
		!strings.Contains(err.Error(), "nobody.invalid") {
		t.Errorf("a name of no machine: %v", err)
	}
	if _, there := told.Load(
		"process 0 of 2 is waiting until the host name nobody.invalid resolves"); !there {
		t.Error("nobody is told what it waits for")
	}
	if runtime.GOOS != "linux" {
		return // others have one loopback address
	}
	g := &Group{position: Position{0, 2, "127.0.0.2:0", -1}}
	l, err := g.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ip := l.Addr().(*net.TCPAddr).IP.String(); ip != "127.0.0.2" {
		t.Errorf("it listens at %s", ip)
	}
}

// TestVoteReminder checks that process 0 reports who has not voted.
func TestVoteReminder(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	g := &Group{position: Position{0, 3, "", -1},
		run: Run{Tell: func(message string) { told <- message }}, gone: make(chan struct{})}
	g.store = newStore(3, voteTimeout, g.gone)
	voted := make(chan error, 1)
	go func() {
		_, err := g.Agree("x", 0)
		voted <- err
	}()
	if message := <-told; message != fmt.Sprintf(`ranks [1 2] have not voted on "x" for %v`,
		voteReminder) {
		t.Errorf("it says %q", message)
	}
	g.lose(errors.New("over"))
	if err := <-voted; err == nil || err.Error() != "over" {
		t.Errorf("the vote ends with %v", err)
	}
}

// TestReminders checks that a waiting process reports what it waits for.
func TestReminders(t *testing.T) {
	t.Parallel()
	at, run := address(t), newRun(t)
	var told [2]chan string
	ctx, cancel := context.WithCancel(t.Context())
	wait := func(rank int) <-chan outcome {
		told[rank] = make(chan string, 10)
		run.Tell = func(message string) { told[rank] <- message }
		return begin(ctx, Position{rank, 3, at, -1}, run)
	}
	expect := func(rank int, texts ...string) {
		t.Helper()
		select {
		case message := <-told[rank]:
			for _, text := range texts {
				if !strings.Contains(message, text) {
					t.Errorf("process %d says %q, want %q in it", rank, message, text)
				}
			}
		case <-time.After(time.Minute):
			t.Fatalf("process %d says nothing", rank)
		}
	}
	one := wait(1)
	expect(1, "process 1 of 3 waits for process 0 at "+at, "connection refused")
	zero := wait(0)
	expect(0, "have not joined at "+at+" yet")
	expect(1, "[2] have not joined at "+at+" yet")
	cancel()
	for rank, o := range []outcome{<-zero, <-one} {
		if !errors.Is(o.err, context.Canceled) {
			t.Errorf("process %d ends with %v", rank, o.err)
		}
	}
}
