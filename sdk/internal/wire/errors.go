package wire

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reason is the reason of a plugin's error. On the wire it is the code of the gRPC status
// and, where that is ambiguous, a google.rpc.ErrorInfo with the domain [ErrorDomain] in the
// details of the status. Message texts are for people only.
type Reason string

// The reasons.
const (
	// Refused means that the plugin does not accept this site or tensor with these settings. The
	// code is INVALID_ARGUMENT, which gRPC never sends by itself, with or without details.
	Refused Reason = "REFUSED"
	// Unreadable means that the plugin cannot decode the request of a host of another version. The
	// code is also INVALID_ARGUMENT.
	Unreadable Reason = "UNREADABLE_REQUEST"
	// Mistaken means any other failure of the plugin's code: a panic, an invalid program, an
	// unexpected error. The code is INTERNAL, or any other code that an application sends.
	Mistaken Reason = "MISTAKE"
)

// ErrorDomain is the domain of reasons in the details of a status.
const ErrorDomain = "cage.plugin.v1"

// maxText is the length, in bytes, to which the text of an error is truncated: gRPC trailers
// hold a few kilobytes at most.
const maxText = 4096

// ToStatus returns the gRPC status of a failed call. It replaces invalid UTF-8, which gRPC
// cannot send.
func ToStatus(reason Reason, text string) error {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	code := codes.InvalidArgument
	if reason == Mistaken {
		code = codes.Internal
	}
	s := status.New(code, strings.ToValidUTF8(text, "�"))
	info := &errdetails.ErrorInfo{Reason: string(reason), Domain: ErrorDomain}
	if detailed, err := s.WithDetails(info); err == nil {
		s = detailed
	}
	return s.Err()
}

// FromStatus returns the reason and text of a plugin's error. ok is false for statuses of the
// connection, such as UNAVAILABLE, or of the call, such as DEADLINE_EXCEEDED, and for errors
// that are not a status.
func FromStatus(err error) (reason Reason, text string, ok bool) {
	s, isStatus := status.FromError(err)
	if !isStatus {
		return "", "", false
	}
	switch s.Code() {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unimplemented,
		codes.ResourceExhausted:
		return "", "", false
	case codes.InvalidArgument:
		reason = Refused
		for _, d := range s.Details() {
			info, ok := d.(*errdetails.ErrorInfo)
			if ok && info.GetDomain() == ErrorDomain && info.GetReason() == string(Unreadable) {
				reason = Unreadable
			}
		}
	default:
		reason = Mistaken
	}
	return reason, s.Message(), true
}
