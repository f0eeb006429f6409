#!/usr/bin/env bash
# Makes a web site of README.md and docs/ in bin/site/html with Zensical, which follows every link
# and anchor on the way. Zensical comes from PyPI into a virtual environment in the cache.
set -euo pipefail
cd "$(dirname "$0")/.."

work=${XDG_CACHE_HOME:-$HOME/.cache}/cage-site
said=$(scripts/venv.sh "$work" zensical==0.0.73 2>&1) || { echo "SKIPPED: the site: $said" && exit 0; }

# Links out of docs/ lead to the repository.
source=https://github.com/cage-qat/cage/blob/main
rm -rf bin/site
mkdir -p bin/site
cp -R docs bin/site/docs
sed -E "s#\]\(docs/#](@#g; s#\]\(([A-Za-z][^):]*)\)#]($source/\1)#g; s#\]\(@#](#g" README.md >bin/site/docs/index.md
find bin/site/docs/*/ -name '*.md' -exec sed -i.orig -E "s#\]\(\.\./\.\./#]($source/#g" {} +
find bin/site/docs -name '*.orig' -delete
rm -rf bin/site/docs/results
"$work/venv/bin/zensical" build --clean --strict
echo "the site is in bin/site/html"
