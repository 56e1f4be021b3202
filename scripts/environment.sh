# Sourced by the scripts beside it: the virtual environment and Java that they need.
# Nothing is installed twice: a stamp in .venv remembers for which pyproject.toml and Python it was made.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# May we install Debian packages? Prints the words to put before apt-get.
apt_words() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" -eq 0 ]; then echo env; elif sudo -n true 2>/dev/null; then echo sudo; else return 1; fi
}

# apt_install PACKAGE…: the first of the packages that this Debian has. One at a time: apt-get waits for nobody.
apt_install() {
    local words package
    words="$(apt_words)" || return 1
    words="flock /var/lib/apt $words"
    $words DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null || return 1
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
            say "installing $package …"
            $words DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" \
                >/dev/null </dev/null && return 0
        fi
    done
    return 1
}

# PYTHON, if it is set; else the first Python of a version for which there are wheels of all that dueq needs. The
# distribution's own comes before others of PATH, if it can make virtual environments or python3-venv may be installed: it is
# compiled with profile-guided optimization, those that pyenv makes are not, and brokers and clients are an eighth faster
# with it.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" && command -v "$PYTHON"
        return
    fi
    for candidate in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
        if fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# fits PYTHON: does it run, and has it a version that will do?
fits() {
    local wanted='import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'
    if [ "$1" = /usr/bin/python3 ] && ! apt_words >/dev/null; then
        wanted="import ensurepip; $wanted"
    fi
    command -v "$1" >/dev/null && "$1" -c "$wanted" 2>/dev/null
}

# ensure_venv SET: a .venv that holds this project and further packages: demo (Spark and flights), or dev (what checks and
# tests need, too). Who comes while another one prepares it waits, and then has nothing to do.
ensure_venv() {
    local python wanted lock
    python="$(find_python)" || fail "${PYTHON:+PYTHON=$PYTHON will not do. }dueq needs Python 3.11, 3.12, 3.13 or 3.14; set PYTHON to one, or install it (Debian 12 or 13: apt-get install python3 python3-venv)."
    wanted="$("$python" -c 'import sys; print(sys.version, sys.prefix)') $root $(cat "$root/pyproject.toml" "$root/scripts/environment.sh" | sha256sum)"
    exec {lock}<"$root"
    flock "$lock"
    prepared "$1" || prepare "$1"
    exec {lock}<&-
}

# prepared SET: is .venv as it is wanted? What is made for dev is good for demo.
prepared() {
    [ -x "$venv/bin/python" ] || return 1
    [ "$(cat "$venv/stamp-dev" 2>/dev/null)" = "$wanted" ] \
        || { [ "$1" = demo ] && [ "$(cat "$venv/stamp-demo" 2>/dev/null)" = "$wanted" ]; }
}

prepare() {
    local packages=(-e '.[demo,gateway]')
    say "preparing .venv ($1) with $python …"
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null \
        || [ "$("$venv/bin/python" -c 'import sys; print(sys.version)')" != "$("$python" -c 'import sys; print(sys.version)')" ]; then
        rm -rf "$venv"
        if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
            apt_install python3-venv && rm -rf "$venv" && "$python" -m venv "$venv" \
                || fail "$python cannot make a virtual environment. On Debian: apt-get install python3-venv"
        fi
    fi
    # dueq itself is not installed once more where it is: whoever runs there would miss it for a moment.
    if prepared demo; then packages=(); fi
    if [ "$1" = dev ]; then packages+=(--group dev); fi
    # Dependency groups need pip 25.1.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' \
        || fail "pip could not be brought up to date; is PyPI within reach?"
    (cd "$root" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location "${packages[@]}") \
        || fail "the packages that dueq needs could not be installed; is PyPI within reach?"
    printf '%s\n' "$wanted" >"$venv/stamp-$1"
}

# The major version of a Java, or nothing.
java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

# ensure_java: a Java of version 17 or later on PATH (ZooKeeper and Spark run on it).
ensure_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java /usr/lib/jvm/*/bin/java; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
        if [ "$(java_major "$candidate")" -ge 17 ] 2>/dev/null; then
            use_java "$(command -v "$candidate")"
            return 0
        fi
    done
    say "no Java 17 or later was found"
    if [ "${1:-}" != again ] && apt_install openjdk-17-jre-headless openjdk-21-jre-headless; then
        ensure_java again
        return 0
    fi
    fail "ZooKeeper and Spark need Java 17 or later, and this user may not install it." \
        "Install it (Debian: apt-get install default-jre-headless), or set JAVA_HOME, and run this again." \
        "Without Java there is one broker: dueq up --brokers 1 --no-zookeeper"
}

# ensure_faketime: the library with which tests set the clock of a broker; without it, those tests are skipped.
ensure_faketime() {
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || apt_install faketime \
        || say "faketime could not be installed: tests of wrong clocks are skipped"
}

# ensure_strace: with it tests cut the power under a real broker; without it, those tests are skipped.
ensure_strace() {
    command -v strace >/dev/null || apt_install strace \
        || say "strace could not be installed: tests of power cuts are skipped"
}

# ensure_chromium: the browser in which the dashboard is tested, and its driver; without them, those tests are skipped.
ensure_chromium() {
    { command -v chromium && command -v chromedriver; } >/dev/null || { apt_install chromium && apt_install chromium-driver; } \
        || say "chromium could not be installed: tests of the dashboard in a browser are skipped"
}

# ensure_curl: with it the manual's examples of HTTP are tested; without it, those blocks are not run.
ensure_curl() {
    command -v curl >/dev/null || apt_install curl \
        || say "curl could not be installed: the manual's examples with curl are not tested"
}

use_java() {
    JAVA_HOME="$(dirname "$(dirname "$(readlink -f "$1")")")"
    PATH="$JAVA_HOME/bin:$PATH"
    export JAVA_HOME PATH
}
