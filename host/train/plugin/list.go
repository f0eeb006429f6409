package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/sdk"
)

// parallel is how many plugins are started at once.
const parallel = 4

// Listing is one entry in the list of all plugins.
type Listing struct {
	Executable
	// Kind and Description are what the plugin says about itself; a plugin that is both a
	// quantizer and an optimizer has two listings. They are empty if Err is not nil.
	Kind        sdk.Kind
	Description sdk.Description
	// Err says why the plugin cannot be used.
	Err error
}

// each calls f for 0 … n−1, a few at a time.
func each(n int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = group.Wait() // no error is ever returned
}

// List starts every plugin that can be found by name, asks what it is, and stops it. The
// result is sorted by name and kind.
func (f *Finder) List(ctx context.Context, opts Options) []Listing {
	names := f.Names()
	found := make([][]Listing, len(names))
	each(len(names), func(i int) { found[i] = f.examine(ctx, names[i], opts) })
	all := slices.Concat(found...)
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

// alternativesLimit is how long plugins may take in all to say of which kind they are.
const alternativesLimit = 5 * time.Second

// alternatives lists the plugins of a kind that can be found by name; "" is any kind. Those whose
// kind is unknown are listed, too: Go packages, as nothing is built for a message, those of the
// directory ByName, as nothing is started there for one, and plugins that did not answer in time.
func (f *Finder) alternatives(ctx context.Context, kind sdk.Kind) []string {
	if kind == "" {
		return f.Names()
	}
	ctx, cancel := context.WithTimeout(ctx, alternativesLimit)
	defer cancel()
	names := f.Names()
	each(len(names), func(i int) {
		fits := func(l Listing) bool { return l.Err == nil && l.Kind == kind }
		if f.startsByName(names[i]) || slices.ContainsFunc(f.examine(ctx, names[i], Options{}), fits) || ctx.Err() != nil {
			return
		}
		names[i] = ""
	})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// Start finds a plugin by name or path and starts it; see [Start]. If there is no plugin
// with that name, the error suggests others of the same kind.
func (f *Finder) Start(ctx context.Context, name string, kind sdk.Kind, opts Options) (*Client, error) {
	exe, err := f.find(ctx, name, func() []string { return f.alternatives(ctx, kind) })
	if err != nil {
		return nil, err
	}
	if f.Launch != nil {
		return f.Launch(ctx, exe, kind, opts)
	}
	return Start(ctx, exe, kind, opts)
}
