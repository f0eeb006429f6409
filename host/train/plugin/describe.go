package plugin

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
)

// describe asks for the description of the wanted kind, or of all kinds when none
// is wanted.
func (c *Client) describe(ctx context.Context) error {
	ask := map[sdk.Kind]func(context.Context) (client.Info, error){
		sdk.KindQuantizer: c.quantizer.Describe,
		sdk.KindOptimizer: c.optimizer.Describe,
	}
	kinds := []sdk.Kind{sdk.KindQuantizer, sdk.KindOptimizer}
	if c.kind == sdk.KindOptimizer {
		slices.Reverse(kinds)
	}
	c.info = map[sdk.Kind]client.Info{}
	var wrong error
	var serves sdk.Kind // one of the kinds, perhaps with a fault
	for _, kind := range kinds {
		info, err := ask[kind](ctx)
		if status.Code(err) != codes.Unimplemented {
			serves = kind
		}
		switch {
		case err == nil:
			c.info[kind] = info
		case status.Code(err) == codes.Unimplemented: // it does not serve this kind
		case kind == c.kind || c.kind == "":
			wrong = errors.Join(wrong, c.explain(ctx, ctx, err))
		}
		if kind == c.kind && serves == kind {
			break // a fault of the other kind concerns nobody here
		}
	}
	if wrong != nil {
		return wrong
	}
	if _, ok := c.info[c.kind]; ok || c.kind == "" && len(c.info) > 0 {
		return nil
	}
	if serves != "" {
		return failure(ErrKind, "is of the kind %s, but a plugin of the kind %s is needed here", serves, c.kind)
	}
	return failure(ErrProtocol, "serves neither a quantizer nor an optimizer")
}
