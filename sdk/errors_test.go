package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// TestErrorsTravel checks that an error of the author's code reaches the host with its type,
// without the plugin and the site, which the host knows.
func TestErrorsTravel(t *testing.T) {
	for _, c := range []struct {
		name    string
		write   func(*program.Builder, program.Value) error
		refused bool
		says    string
	}{
		{"a refusal", func(*program.Builder, program.Value) error {
			return sdk.Refuse("rows of %d must be even", 7)
		}, true, "rows of 7 must be even"},
		{"wrapped", func(*program.Builder, program.Value) error {
			return fmt.Errorf("split: %w", sdk.Refuse("odd"))
		}, true, "split: odd"},
		{"long", func(*program.Builder, program.Value) error {
			return sdk.Refuse("%s", strings.Repeat("so ", 10000))
		}, true, "so so"},
		{"any other error", func(*program.Builder, program.Value) error {
			return errors.New("the codebook is missing")
		}, false, "the codebook is missing"},
		{"a panic that sounds like a refusal",
			func(*program.Builder, program.Value) error {
				panic(sdk.Refuse("use 4 bits"))
			}, false, "panic: use 4 bits (errors_test.go:"},
		{"an invalid program",
			func(b *program.Builder, x program.Value) error {
				x.Add(b.Zeros(5))
				return nil
			}, false, `program "`},
		{"a program of another shape", func(*program.Builder, program.Value) error { return nil }, false,
			"value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			remote, _ := connect(t,
				quantizer(func(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
					return sdk.Quantized{Value: b.Const(1)}, c.write(b, x)
				}), nil)
			_, err := remote.Quantize(t.Context(), weight, program.Limits{})
			_, refused := errors.AsType[*sdk.Refusal](err)
			_, mistaken := errors.AsType[*client.Mistake](err)
			if refused != c.refused || mistaken == c.refused || !strings.Contains(err.Error(), c.says) ||
				len(err.Error()) > 5000 {
				t.Errorf("got %T: %.200v", err, err)
			}
		})
	}
}

// TestUnreadableTravels checks that a request of another version is not refused, but gives
// ErrVersion.
func TestUnreadableTravels(t *testing.T) {
	conn := dial(t, quantizer(nil), nil)
	_, err := client.NewQuantizer(unreadable{conn}).Quantize(t.Context(), weight, program.Limits{})
	if !errors.Is(err, client.ErrVersion) || !strings.Contains(err.Error(), "role 9 is unknown") {
		t.Errorf("got %v", err)
	}
}

// unreadable is a connection that sends requests with an unknown role.
type unreadable struct{ grpc.ClientConnInterface }

func (u unreadable) Invoke(
	ctx context.Context, method string, request, answer any, opts ...grpc.CallOption,
) error {
	request.(*pb.QuantizeRequest).Site.Role = 9
	return u.ClientConnInterface.Invoke(ctx, method, request, answer, opts...)
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	q, o := connect(t, nil, nil)
	for _, site := range []sdk.Site{
		{Role: "bias", Shape: []int{2}},
		{Role: sdk.RoleWeight, Product: "attention", Shape: []int{2}},
		{Role: sdk.RoleWeight, Shape: []int{0}},
		{Role: sdk.RoleWeight, Shape: []int{2}, Values: sdk.NewValues(map[string]any{"l": []int{}})},
	} {
		if _, err := q.Quantize(t.Context(), site, program.Limits{}); err == nil ||
			status.Code(err) != codes.Unknown {
			t.Errorf("%+v: %v", site, err)
		}
	}
	if _, err := o.Program(t.Context(), sdk.Tensor{Role: "bias"}, program.Limits{}); err == nil ||
		status.Code(err) != codes.Unknown { // a plugin without optimizers answers Unimplemented
		t.Errorf("an unknown role was sent: %v", err)
	}
}
