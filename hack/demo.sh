#!/usr/bin/env bash
# The whole path of an event on this machine, in about 20 seconds: a worker, two receivers
# that verify (one fails at times, one has a bug), events sent, the worker killed, dead
# letters replayed. Exits 0 if every event arrived, verified.
#
#   KEEP=1           leave everything running at the end, and say what to try next;
#                    else everything is ended and its data removed
#   PORT_API, PORT_ORDERS, PORT_BILLING   ports to use; unset: free ones
#   ORDERS, PAYMENTS how many events of each kind to send (20 and 5)
set -euo pipefail
cd "$(dirname "$0")/.."

KEEP=${KEEP:-}
ORDERS=${ORDERS:-20}
PAYMENTS=${PAYMENTS:-5}
DOORSTEP=${DOORSTEP:-bin/doorstep}

bold='' dim='' reset=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' dim=$'\e[2m' reset=$'\e[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$reset"; }
# show prints a command as a person would type it, and runs it.
show() {
  printf '%s$ doorstep %s%s\n' "$dim" "$*" "$reset"
  "$DOORSTEP" "$@"
}
fail() {
  printf 'demo: %s\n' "$*" >&2
  [[ ! -s $work/worker.log ]] || { printf 'the worker'\''s last lines:\n' >&2; tail -n 15 "$work/worker.log" >&2; }
  exit 1
}

work=$(mktemp -d "${TMPDIR:-/tmp}/doorstep-demo.XXXXXX")
pids=()
worker=''
# finish ends what this script started, by process id.
finish() {
  local pid
  for pid in $worker "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in $worker "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# free_port prints a port of 127.0.0.1 that nobody listens on and that wasn't given out.
given=' '
free_port() {
  local port
  for _ in {1..100}; do
    port=$((20000 + RANDOM % 12000))
    [[ $given != *" $port "* ]] || continue
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  fail 'no free port found'
}
api=${PORT_API:-$(free_port)}; given+="$api "
orders=${PORT_ORDERS:-$(free_port)}; given+="$orders "
billing=${PORT_BILLING:-$(free_port)}

if [[ ! -x $DOORSTEP ]]; then
  say 'Building doorstep …'
  go build -o "$DOORSTEP" ./cmd/doorstep
fi
DOORSTEP=$(realpath "$DOORSTEP")

# The tools find the worker and its API key by these.
export DOORSTEP_SERVER=http://127.0.0.1:$api DOORSTEP_DATA=$work/data

# await TEXT COMMAND… runs the command until it succeeds, for 40 seconds at most.
await() {
  local what=$1 until=$((SECONDS + 40))
  shift
  until "$@"; do
    ((SECONDS < until)) || fail "waited 40 seconds for $what"
    sleep 0.1
  done
}
# rows counts the lines of a table, without its header; it fails when the API does.
rows() {
  local table
  table=$("$DOORSTEP" get "$@" -n demo --limit 0 2>>"$work/tools.log") || return 1
  tail -n +2 <<<"$table" | grep -c . || true
}
answers() { "$DOORSTEP" get endpoints -n demo >/dev/null 2>&1; }
none_waiting() {
  local waiting
  waiting=$(rows deliveries --endpoint "$1" --state waiting) && ((waiting == 0))
}
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start_worker() {
  "$DOORSTEP" standalone -f "$work/manifests" --data "$work/data" --listen "127.0.0.1:$api" \
    </dev/null >>"$work/worker.log" 2>&1 &
  worker=$!
  await 'the worker to answer' worker_answers
}
worker_answers() {
  kill -0 "$worker" 2>/dev/null || fail 'the worker ended while it started'
  answers
}
# start_receiver NAME PORT FLAGS…
start_receiver() {
  local name=$1 port=$2
  shift 2
  "$DOORSTEP" receive --listen "127.0.0.1:$port" --data "$work/data" --endpoint "demo/$name" \
    --log "$work/$name.jsonl" "$@" </dev/null >"$work/$name.log" 2>&1 &
  pids+=($!)
  await "the $name receiver to listen" listening "$port"
}
# send ID TYPE DATA posts an event and notes its id once it is acknowledged.
send() {
  "$DOORSTEP" send -n demo --id "$1" --type "$2" --data "$3" >/dev/null || fail "event $1 was not accepted"
  echo "$1" >>"$work/sent"
}

if [[ -z $KEEP || $KEEP == 0 ]]; then
  echo "This takes about 20 seconds; its data is in $work until then, and is removed."
fi
say "1. A worker on the manifests of config/demo, and two receivers that verify signatures"
mkdir "$work/manifests"
for file in config/demo/*.yaml; do
  sed -e "s#127.0.0.1:3001/#127.0.0.1:$orders/#" -e "s#127.0.0.1:3002/#127.0.0.1:$billing/#" \
    "$file" >"$work/manifests/$(basename "$file")"
done
start_worker
start_receiver orders "$orders" --fail-rate 0.3
echo 422 >"$work/billing-is-broken"
start_receiver billing "$billing" --fail-file "$work/billing-is-broken"
echo "   orders fails three requests of ten; billing has a bug and refuses everything with 422"

say "2. Send $ORDERS orders and $PAYMENTS payments"
for ((i = 1; i <= ORDERS; i++)); do send "order-$i" order.created "{\"order\":$i}"; done
for ((i = 1; i <= PAYMENTS; i++)); do send "payment-$i" payment.completed "{\"order\":$i,\"amount\":\"19.90\"}"; done
show get endpoints -n demo

say "3. Kill the worker (SIGKILL) and start it again: what was accepted is on disk"
kill -KILL "$worker"
wait "$worker" 2>/dev/null || true
start_worker
show get endpoints -n demo

say "4. Orders are retried until each is delivered; payments are dead letters, kept whole"
await 'orders to be delivered' none_waiting orders
await 'payments to be dead-lettered' none_waiting billing
show get endpoints -n demo
dead=$(rows dead-letters)
if ((dead > 0)); then
  show get dead-letters -n demo
fi

say "5. Mend the billing receiver, and replay"
rm "$work/billing-is-broken"
replayed=0
if ((dead > 0)); then
  show replay --dead-letters --endpoint billing -n demo --yes | tee "$work/replayed"
  replayed=$(sed -n 's/^\([0-9]*\) deliver.* replayed.*/\1/p' "$work/replayed")
fi
await 'payments to be delivered' none_waiting billing
show get endpoints -n demo

# What arrived is read from what the receivers wrote after they had verified it, and held
# against the ids that were acknowledged.
sent=$(wc -l <"$work/sent")
delivered=$(rows deliveries --state delivered)
cat "$work/orders.jsonl" "$work/billing.jsonl" | sed -n 's/^{"id":"\([^"]*\)".*/\1/p' | sort -u >"$work/arrived"
verified=$(wc -l <"$work/arrived")
lost=$(sort -u "$work/sent" | comm -23 - "$work/arrived" | wc -l)

if [[ -n $KEEP && $KEEP != 0 ]]; then
  say 'Everything is still running. In this shell:'
  cat <<TRY
  export DOORSTEP_SERVER=$DOORSTEP_SERVER DOORSTEP_DATA=$DOORSTEP_DATA PATH="$(dirname "$DOORSTEP"):\$PATH"

Then try:
  doorstep send -n demo --type order.created --data '{"order":4711}' --wait
  doorstep get events -n demo
  doorstep explain -n demo order-1
  tail -f $work/orders.log                           # what the receiver sees
  echo 503 > $work/billing-is-broken       # the billing receiver breaks; send it a payment.completed
  \$EDITOR $work/manifests/orders.yaml                # a change is live within 2 seconds

To end it:
  kill $worker ${pids[*]}; rm -r $work
TRY
  trap - EXIT
fi
echo
echo "demo: sent=$sent delivered=$delivered verified=$verified dead_lettered=$dead replayed=$replayed lost=$lost"
((lost == 0 && sent == verified && sent == delivered && replayed == dead && dead == PAYMENTS))
