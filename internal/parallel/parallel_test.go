package parallel_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/internal/parallel"
)

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEach checks that items are pointers to the elements of the list.
func TestEach(t *testing.T) {
	list := []int{1, 2, 3}
	err := parallel.Run(t.Context(), parallel.Each(list),
		func(i *int) (int, error) { *i *= 2; return *i, nil }, func(int) error { return nil })
	if err != nil || list[0]+list[1]+list[2] != 12 {
		t.Errorf("%v, %v", list, err)
	}
}

// numbers yields the numbers below n, and then the error if it is not nil.
func numbers(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// TestOrder checks that results come in the order of the items.
func TestOrder(t *testing.T) {
	next := 0
	err := parallel.Run(t.Context(), numbers(1000, nil), func(i int) (int, error) {
		s := strings.Repeat("x", (i*37)%5000)
		return i + 0*len(s), nil
	}, func(i int) error {
		if i != next {
			t.Fatalf("%d comes after %d", i, next-1)
		}
		next++
		return nil
	})
	if err != nil || next != 1000 {
		t.Errorf("%d results, %v", next, err)
	}
}

// TestErrors checks that Run returns an error of an item, of work, of consume and of the context.
func TestErrors(t *testing.T) {
	bad := errors.New("bad")
	fails := func(at int) func(int) error {
		return func(i int) error {
			if i == at {
				return bad
			}
			return nil
		}
	}
	run := func(ctx context.Context, items iter.Seq2[int, error], work,
		consume func(int) error) error {
		return parallel.Run(ctx, items, func(i int) (int, error) { return i, work(i) }, consume)
	}
	never := fails(-1)
	upTo50 := func(i int) error {
		if i >= 50 {
			t.Errorf("the result %d is handed over, after that of an item that failed", i)
		}
		return nil
	}
	for what, err := range map[string]error{
		"item":     run(t.Context(), numbers(100, bad), never, never),
		"work":     run(t.Context(), numbers(100, nil), fails(50), upTo50),
		"consumer": run(t.Context(), numbers(100, nil), never, fails(50)),
	} {
		if !errors.Is(err, bad) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, numbers(100, nil), never, never); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
