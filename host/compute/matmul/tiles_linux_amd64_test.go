//go:build amd64 && goexperiment.simd

package matmul

import (
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestTilesSurviveSignals checks that a thread interrupted in a kernel finds its tiles unchanged,
// also if another product ran on its processor in between.
func TestTilesSurviveSignals(t *testing.T) {
	tier, err := Named("amx")
	if err != nil {
		t.Skip(err)
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	end := make(chan struct{})
	sent := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-end:
				sent <- n
				return
			default:
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
				time.Sleep(50 * time.Microsecond)
				n++
			}
		}
	}()
	s := square(96, 96, 4000)
	l, rl := s.layouts()
	r := rand.New(rand.NewPCG(1, 2))
	x, y := elements(t, "float32", reaches(t, l), false, normal(r)),
		elements(t, "float32", reaches(t, rl), false, normal(r))
	p := plan(t, tier, BFloat16, s)
	want := make([]float32, p.Size())
	run1(t, p, want, x, y, nil)
	goroutines(8)(400, func(i int) {
		got := make([]float32, p.Size())
		run1(t, p, got, x, y, nil)
		if !slices.Equal(got, want) {
			t.Errorf("run %d has other bits", i)
		}
	})
	close(end)
	if n := <-sent; n < 10 {
		t.Errorf("%d signals were sent, too few to say anything", n)
	}
}
