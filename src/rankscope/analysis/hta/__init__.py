"""HolisticTraceAnalysis' numbers over our columns. Nothing else depends on this package."""
