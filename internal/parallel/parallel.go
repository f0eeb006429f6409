// Package parallel processes a sequence of items on all processors and delivers the results in
// order.
package parallel

import (
	"context"
	"iter"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Run calls work for every item, on all processors, and consume for every result, in order and on
// one goroutine. It stops at the first error of work, consume or items, and returns that error.
// Only a few items and results per processor are buffered.
func Run[T, R any](ctx context.Context, items iter.Seq2[T, error],
	work func(T) (R, error), consume func(R) error) error {
	workers := runtime.GOMAXPROCS(0)
	results := make(chan chan R, 4*workers)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers + 2) // the workers, and the two goroutines below
	group.Go(func() error {
		for result := range results {
			select {
			case r := <-result:
				if err := consume(r); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		defer close(results)
		for item, err := range items {
			if err != nil {
				return err
			}
			result := make(chan R, 1)
			select {
			case results <- result:
			case <-ctx.Done():
				return ctx.Err()
			}
			group.Go(func() error {
				r, err := work(item)
				if err == nil {
					result <- r
				}
				return err
			})
		}
		return nil
	})
	return group.Wait()
}

// Each returns a sequence of pointers to the elements of a list, for [Run].
func Each[T any](list []T) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for i := range list {
			if !yield(&list[i], nil) {
				return
			}
		}
	}
}
