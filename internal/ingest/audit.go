package ingest

import (
	"context"
	"net/http"
	"strconv"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// The actions of audit records.
const (
	AuditReplay = "replay"
	AuditErase  = "erase"
	AuditEnable = "enable"
	AuditRetry  = "retry"
	AuditTest   = "test"
)

// audit leaves a durable record of what a caller is about to do, and writes it to the log. It comes before the action,
// and an action whose record can't be written is not done: nothing is ever done without a trace. So a record may tell
// of an action that failed after it; the answer and the log say that.
func (s *Server) audit(r *http.Request, c call, record queue.AuditRecord, reason string) *Problem {
	record.Namespace, record.Caller = c.namespace, c.caller.Name
	if reason != "" {
		if record.Detail != "" {
			record.Detail += "; "
		}
		record.Detail += "reason given: " + reason
	}
	// Not cut off by a caller that hangs up: what follows would go on as well.
	if err := s.queue.AddAudit(context.WithoutCancel(r.Context()), record); err != nil {
		return s.problemOf(err, "write an audit record")
	}
	s.log.Info("audit", "action", record.Action, "caller", record.Caller, "namespace", record.Namespace,
		"target", record.Target, "count", record.Count, "detail", record.Detail)
	return nil
}

const cursorAudit = "u1"

// listAudit gives a namespace's audit records, newest first.
func (s *Server) listAudit(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "limit", "cursor", "action", "target")
	if problem != nil {
		return problem
	}
	limit, problem := limitOf(v)
	if problem != nil {
		return problem
	}
	before, problem := seqCursor(v, cursorAudit)
	if problem != nil {
		return problem
	}
	action, target := v.Get("action"), v.Get("target")
	list := AuditList{Items: []AuditRecord{}}
	for scan := maxScan; scan > 0; {
		ask := min(limit-len(list.Items), scan)
		records, next, err := s.queue.Audits(r.Context(), c.namespace, before, ask)
		if err != nil {
			return s.problemOf(err, "list audit records")
		}
		for _, a := range records {
			if action != "" && a.Action != action || target != "" && a.Target != target || c.caller.bound() && !c.caller.sees(a.Target) {
				continue
			}
			list.Items = append(list.Items, AuditRecord{
				At: a.At, Caller: a.Caller, Action: a.Action, Target: a.Target, Count: a.Count, Detail: a.Detail,
			})
		}
		before, scan = next, scan-ask
		if next == 0 || len(list.Items) == limit {
			break
		}
	}
	if before != 0 {
		list.Cursor = encodeCursor(cursorAudit, strconv.FormatUint(before, 10))
	}
	writeJSON(w, http.StatusOK, mediaJSON, list)
	return nil
}
