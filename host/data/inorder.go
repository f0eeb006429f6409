package data

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// inOrder calls work for every item on all processors, and consume with the
// results in the order of the items, from one goroutine. The first error of
// either ends everything and is returned. No more than a few results per
// processor wait at any time.
func inOrder[T, R any](ctx context.Context, items []T, work func(*T) (R, error), consume func(R) error) error {
	type job struct {
		item   *T
		result chan R
	}
	workers := runtime.GOMAXPROCS(0)
	jobs := make(chan job)
	results := make(chan chan R, 4*workers)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(jobs)
		defer close(results)
		for i := range items {
			result := make(chan R, 1)
			select {
			case results <- result:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case jobs <- job{&items[i], result}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		group.Go(func() error {
			for j := range jobs {
				r, err := work(j.item)
				if err != nil {
					return err
				}
				j.result <- r
			}
			return nil
		})
	}
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
	return group.Wait()
}
