package wire_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cage-qat/cage/sdk/internal/wire"
)

func TestReasonsTravel(t *testing.T) {
	for reason, code := range map[wire.Reason]codes.Code{
		wire.Refused: codes.InvalidArgument, wire.Unreadable: codes.InvalidArgument,
		wire.Mistaken: codes.Internal,
	} {
		err := wire.ToStatus(reason, "use 4 bits")
		got, text, ok := wire.FromStatus(err)
		if got != reason || text != "use 4 bits" || !ok || status.Code(err) != code {
			t.Errorf("%s: %s, %q, %v, as %v", reason, got, text, ok, err)
		}
	}
}

// TestForeignStatuses checks statuses of other plugins and of gRPC, without the SDK's details.
func TestForeignStatuses(t *testing.T) {
	of := func(code codes.Code, info *errdetails.ErrorInfo) error {
		s := status.New(code, "text")
		if info != nil {
			s, _ = s.WithDetails(info)
		}
		return s.Err()
	}
	foreign := &errdetails.ErrorInfo{Domain: "example.org", Reason: string(wire.Unreadable)}
	for _, c := range []struct {
		err  error
		want wire.Reason
		ok   bool
	}{
		{of(codes.InvalidArgument, nil), wire.Refused, true},
		{of(codes.InvalidArgument, foreign), wire.Refused, true},
		{of(codes.InvalidArgument,
			&errdetails.ErrorInfo{Domain: wire.ErrorDomain, Reason: "OF_A_LATER_VERSION"}), wire.Refused,
			true},
		{of(codes.Unknown, nil), wire.Mistaken, true},
		{of(codes.Internal, &errdetails.ErrorInfo{Domain: wire.ErrorDomain,
			Reason: string(wire.Refused)}), wire.Mistaken, true},
		{of(codes.FailedPrecondition, nil), wire.Mistaken, true},
		{of(codes.Unavailable, nil), "", false},
		{of(codes.Unimplemented, nil), "", false},
		{of(codes.Canceled, nil), "", false},
		{context.DeadlineExceeded, "", false},
		{errors.New("text"), "", false},
		{nil, "", false},
	} {
		if got, _, ok := wire.FromStatus(c.err); got != c.want || ok != c.ok {
			t.Errorf("%v: %q, %v", c.err, got, ok)
		}
	}
}

// TestLongTexts checks that texts that gRPC cannot send are cut or made valid UTF-8.
func TestLongTexts(t *testing.T) {
	for _, text := range []string{strings.Repeat("ü", 10000), "x" + strings.Repeat("ü", 10000),
		"not \xff UTF-8"} {
		err := wire.ToStatus(wire.Refused, text)
		reason, got, ok := wire.FromStatus(err)
		if !ok || reason != wire.Refused || len(got) > 4200 || strings.ToValidUTF8(got, "") != got ||
			len(status.Convert(err).Details()) != 1 {
			t.Errorf("%.20q… became %.20q… of %d bytes", text, got, len(got))
		}
	}
}
