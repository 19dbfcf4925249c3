package retry

// Classify says what an answer's status code means for its delivery. 2xx is
// Delivered. Among the lists a code beats a class, and between equals disable
// comes before fail and fail before retry; an empty retry or disable list means
// the default one. Every other answer is DeadLetter. What is no status code
// (below 100, above 599) is a malformed answer, and retried.
func (p *Policy) Classify(status int) Class {
	switch {
	case status < 100 || status > 599:
		return Retry
	case status >= 200 && status < 300:
		return Delivered
	}
	retry, disable := p.Responses.Retry, p.Responses.Disable
	if len(retry) == 0 {
		retry = defaultRetry()
	}
	if len(disable) == 0 {
		disable = defaultDisable()
	}
	code := [3]byte{'0' + byte(status/100), '0' + byte(status/10%10), '0' + byte(status%10)}
	class := [3]byte{code[0], 'x', 'x'}
	for _, want := range [][3]byte{code, class} {
		switch {
		case lists(disable, want):
			return Disable
		case lists(p.Responses.Fail, want):
			return DeadLetter
		case lists(retry, want):
			return Retry
		}
	}
	return DeadLetter
}

func lists(list []string, want [3]byte) bool {
	for _, s := range list {
		if s == string(want[:]) {
			return true
		}
	}
	return false
}

// readsRetryAfter says whether Retry-After means something with an answer:
// RFC 9110 §15.6.4 (503), RFC 6585 §4 (429), RFC 8470 §5.2 (425) and, by custom,
// 408 and the other 5xx.
func readsRetryAfter(status int) bool {
	return status == 408 || status == 425 || status == 429 || (status >= 500 && status <= 599)
}
