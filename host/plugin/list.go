package plugin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cage-qat/cage/sdk"
	"golang.org/x/sync/errgroup"
)

// parallel is how many plugins are started at once.
const parallel = 4

// Listing is one line of the list of all plugins.
type Listing struct {
	Executable
	// Kind and Description are what the plugin says; a plugin that is both a
	// quantizer and an optimizer has two listings. Empty when Err is not nil.
	Kind        sdk.Kind
	Description sdk.Description
	// Err says why the plugin cannot be used.
	Err error
}

// List starts every plugin that can be found by name, asks what it is, and ends
// it. The result is in the order of names and kinds.
func (f *Finder) List(ctx context.Context, opts Options) []Listing {
	var mu sync.Mutex
	var all []Listing
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, name := range f.names() {
		group.Go(func() error {
			found := f.examine(ctx, name, opts)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			return nil
		})
	}
	_ = group.Wait() // no error is ever returned
	slices.SortFunc(all, func(a, b Listing) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Kind, a.Kind))
	})
	return all
}

func (f *Finder) examine(ctx context.Context, name string, opts Options) []Listing {
	exe, err := f.Find(ctx, name)
	if err != nil {
		return []Listing{{Executable: Executable{Name: name}, Err: err}}
	}
	c, err := Start(ctx, exe, "", opts)
	if err != nil {
		return []Listing{{Executable: exe, Err: err}}
	}
	defer c.Close()
	var found []Listing
	for kind, info := range c.info {
		found = append(found, Listing{Executable: exe, Kind: kind, Description: info.Description})
	}
	return found
}

// alternativesLimit is how long plugins may take to say of which kind they are, for a
// message.
const alternativesLimit = 5 * time.Second

// alternatives lists the plugins of a kind that can be found by name; "" is any kind. Of Go
// packages the kind is not known: nothing is built for a message.
func (f *Finder) alternatives(ctx context.Context, kind sdk.Kind) []string {
	if kind == "" {
		return f.names()
	}
	ctx, cancel := context.WithTimeout(ctx, alternativesLimit)
	defer cancel()
	names := f.names()
	fits := make([]bool, len(names))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, name := range names {
		group.Go(func() error {
			if f.isSource(name) {
				fits[i] = true
				return nil
			}
			for _, l := range f.examine(ctx, name, Options{}) {
				fits[i] = fits[i] || l.Err == nil && l.Kind == kind
			}
			return nil
		})
	}
	_ = group.Wait() // no error is ever returned
	var list []string
	for i, name := range names {
		if fits[i] {
			list = append(list, name)
		}
	}
	return list
}

// Request asks for one plugin.
type Request struct {
	// Name is a name or path.
	Name string
	// Kind is what it must be.
	Kind    sdk.Kind
	Options Options
}

// StartAll finds and starts several plugins at once. It returns the clients in the
// order of the requests, or the first error with no plugin left running. The
// plugins end when ctx is cancelled.
func (f *Finder) StartAll(ctx context.Context, requests ...Request) ([]*Client, error) {
	clients := make([]*Client, len(requests))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, r := range requests {
		group.Go(func() error {
			exe, err := f.find(ctx, r.Name, func() []string { return f.alternatives(ctx, r.Kind) })
			if err == nil {
				clients[i], err = Start(ctx, exe, r.Kind, r.Options)
			}
			if typed, ok := errors.AsType[*Error](err); ok {
				typed.Request = i
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		CloseAll(clients)
		return nil, err
	}
	return clients, nil
}

// CloseAll closes several clients at once; nil ones are skipped.
func CloseAll(clients []*Client) {
	var all sync.WaitGroup
	for _, c := range clients {
		if c != nil {
			all.Go(c.Close)
		}
	}
	all.Wait()
}
