//! A bar chart of ratios, as SVG: two series, and a line for Redis.

/// The position of the bars.
const TOP: f64 = 40.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 50.0;
/// The width of a group of bars, and of one of its two.
const GROUP: f64 = 110.0;
const BAR: f64 = 38.0;
/// The highest ratio that fits.
const MOST: f64 = 1.2;
const COLOURS: [&str; 2] = ["#2f6f8f", "#9bc4d6"];

/// One series: its name and its ratios.
pub type Series = (String, Vec<f64>);

/// The numbers of a Markdown table whose header begins with `head`: the names of its columns, and one series
/// per line.
pub fn table(text: &str, head: &str) -> (Vec<String>, Vec<Series>) {
    let from = text.find(head).map_or("", |at| &text[at..]);
    let mut rows = from.lines().take_while(|line| line.starts_with('|')).map(|line| {
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().replace(['`', '*'], ""));
        cells.collect::<Vec<String>>()
    });
    let names = rows.next().unwrap_or_default().into_iter().skip(1).collect();
    let series = rows.skip(1).filter_map(|row| {
        let (name, cells) = row.split_first()?;
        Some((name.clone(), cells.iter().filter_map(|cell| cell.parse().ok()).collect()))
    });
    (names, series.collect())
}

fn height(ratio: f64) -> f64 {
    ratio.min(MOST) / MOST * HEIGHT
}

/// Draws `series`, a bar for each of `names`, under `title`.
pub fn bars(title: &str, names: &[String], series: &[Series]) -> String {
    let (width, bottom) = (LEFT + GROUP * names.len() as f64 + 20.0, TOP + HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n",
        bottom + 60.0
    );
    for (at, (name, ratios)) in series.iter().take(COLOURS.len()).enumerate() {
        let colour = COLOURS[at];
        for (n, ratio) in ratios.iter().enumerate() {
            let (x, y) = (LEFT + GROUP * n as f64 + 12.0 + (BAR + 4.0) * at as f64, bottom - height(*ratio));
            let tall = height(*ratio);
            out.push_str(&format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BAR}\" height=\"{tall:.1}\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ratio:.2}</text>\n",
                x + BAR / 2.0,
                y - 4.0
            ));
        }
        let x = LEFT + 160.0 * at as f64;
        let y = bottom + 40.0;
        out.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n<text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>\n",
            y - 11.0,
            x + 18.0
        ));
    }
    for (n, name) in names.iter().enumerate() {
        let x = LEFT + GROUP * n as f64 + 12.0 + BAR;
        out.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>\n",
            bottom + 18.0
        ));
    }
    let one = bottom - height(1.0);
    out.push_str(&format!(
        "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{one:.1}\" y2=\"{one:.1}\" stroke=\"#b03030\" stroke-dasharray=\"5 3\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#b03030\">Redis</text>\n\
         <line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\" stroke=\"#404040\"/>\n</svg>\n",
        width - 20.0,
        LEFT - 6.0,
        one + 4.0,
        width - 20.0
    ));
    out
}
