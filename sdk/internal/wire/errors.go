package wire

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reason says why a plugin answers with an error. On the wire it is the code of the gRPC
// status and, where that is not enough, a google.rpc.ErrorInfo with the domain
// [ErrorDomain] among the details of the status. Texts are for people only.
type Reason string

// The reasons.
const (
	// Refused: the plugin does not accept this site or tensor with these settings.
	// The code is INVALID_ARGUMENT, which gRPC never sends by itself; a status with
	// this code and without details means the same.
	Refused Reason = "REFUSED"
	// Unreadable: the plugin cannot read the request; its host is of another version.
	// The code is INVALID_ARGUMENT, too.
	Unreadable Reason = "UNREADABLE_REQUEST"
	// Mistaken: everything else that can go wrong in the plugin's code: a panic, a
	// program that is not valid, an unexpected error. The code is INTERNAL; any other
	// code that an application sends means the same.
	Mistaken Reason = "MISTAKE"
)

// ErrorDomain is the domain of reasons in the details of a status.
const ErrorDomain = "cage.plugin.v1"

// maxText is the length, in bytes, at which the text of an error is cut: trailers of gRPC
// hold a few kilobytes at most.
const maxText = 4096

// ToStatus makes the gRPC status of a failed call. It replaces what is not valid UTF-8,
// because that could not be sent.
func ToStatus(reason Reason, text string) error {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	code := codes.InvalidArgument
	if reason == Mistaken {
		code = codes.Internal
	}
	s := status.New(code, strings.ToValidUTF8(text, "�"))
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: string(reason), Domain: ErrorDomain}); err == nil {
		s = detailed
	}
	return s.Err()
}

// FromStatus reads why a plugin answered with an error. ok is false for statuses of the
// connection, such as UNAVAILABLE, for those of the call, such as DEADLINE_EXCEEDED, and
// for errors that are not a status.
func FromStatus(err error) (reason Reason, text string, ok bool) {
	s, isStatus := status.FromError(err)
	if !isStatus {
		return "", "", false
	}
	switch s.Code() {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unimplemented, codes.ResourceExhausted:
		return "", "", false
	case codes.InvalidArgument:
		reason = Refused
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == ErrorDomain && info.GetReason() == string(Unreadable) {
				reason = Unreadable
			}
		}
	default:
		reason = Mistaken
	}
	return reason, s.Message(), true
}
